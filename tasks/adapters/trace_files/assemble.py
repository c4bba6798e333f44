"""Rows of all blocks become one Trace: refuse, drop, count, sort, spread, and say each."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.clock import Clock, utc_text
from tasks.adapters.trace_files.faults import REASONS, Fault
from tasks.adapters.trace_files.line_blocks import LineReader
from tasks.adapters.trace_files.options import TraceOptions
from tasks.adapters.trace_files.quantised import grid_step_s, spread
from tasks.adapters.trace_files.row_block import RowBlock
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace, TraceNotes

SHOWN_REJECTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """Where the rows came from: for messages, notes and the trace's identity.

    resolution_s: the step of the stamps where the format tells it, None to look for one.
    """

    path: Path
    format: str
    sha256: str
    block_tokens: int
    resolution_s: float | None = None


def assemble(rows: RowBlock, clock: Clock, source: SourceFile, options: TraceOptions) -> Trace:
    """Return the trace of the readable rows with at least one prompt and one output token.

    Raises:
        TraceError: TOO_MANY_BAD_ROWS above ``options.max_bad_frac``, or no row left.
    """
    rejected = _refuse(rows, source, options)
    good = rows.faults == Fault.NONE
    no_prompt = good & (rows.prompt == 0)
    no_output = good & (rows.output == 0) & ~no_prompt
    keep = np.flatnonzero(good & ~no_prompt & ~no_output)
    dropped = tuple(
        (name, int(where.sum()))
        for name, where in (("zero_input", no_prompt), ("zero_output", no_output))
        if where.any()
    )
    if keep.size == 0:
        raise TraceError(
            f"trace file {source.path} has {rows.lines.size} rows but none with prompt and output "
            f"tokens of at least 1 (dropped: {dict(dropped)}); needed at least one; "
            f"check the columns of the export"
        )
    warnings = [*clock.warnings]
    if dropped:
        said = ", ".join(f"{count} {name}" for name, count in dropped)
        warnings.append(("ZERO_LENGTH_DROPPED", f"failed requests of the source dropped: {said}"))
    seconds = clock.seconds[keep]
    first = float(seconds.min())
    late = int((np.diff(seconds) < 0).sum())
    if late:
        order = np.argsort(seconds, kind="stable")
        keep, seconds = keep[order], seconds[order]
    arrival = _spread(seconds - first, source, options, warnings)
    origin = None if clock.zero_unix_s is None else utc_text(clock.zero_unix_s + first)
    return Trace(
        arrival_s=arrival,
        prompt_tokens=rows.prompt[keep],
        output_tokens=rows.output[keep],
        source=str(source.path),
        sha256=source.sha256,
        notes=TraceNotes(
            format=source.format,
            rows=int(rows.lines.size),
            rejected_rows=int((~good).sum()),
            out_of_order_rows=late,
            rejected=rejected,
            warnings=tuple(warnings),
            dropped=dropped,
        ),
        prefix_blocks=None if rows.blocks is None else tuple(rows.blocks[i] for i in keep.tolist()),
        prefix_block_tokens=source.block_tokens,
        session=None if rows.session is None else tuple(rows.session[i] for i in keep.tolist()),
        origin_utc=origin,
    )


def _refuse(
    rows: RowBlock, source: SourceFile, options: TraceOptions
) -> tuple[tuple[int, str], ...]:
    bad = np.flatnonzero(rows.faults != Fault.NONE)
    shown = tuple(
        (int(rows.lines[row]), REASONS[Fault(int(rows.faults[row]))])
        for row in bad[:SHOWN_REJECTED].tolist()
    )
    bad_frac = bad.size / max(1, rows.lines.size)
    if bad.size and (bad_frac > options.max_bad_frac or bad.size == rows.lines.size):
        line, reason = shown[0]
        raise TraceError(
            f"trace file {source.path} has {bad.size} bad rows of {rows.lines.size} "
            f"({100 * bad_frac:.1f} %), allowed max_bad_frac={options.max_bad_frac}; first bad "
            f"line {line}: {reason}: {_line_text(source.path, line)!r}; correct the export or "
            f"raise max_bad_frac",
            code="TOO_MANY_BAD_ROWS",
        )
    return shown


def _line_text(path: Path, number: int) -> str:
    for block in LineReader(path).blocks():
        lines = block.data.count(b"\n")
        if number < block.first_line + lines:
            return block.lines[number - block.first_line].strip()[:120]
    return ""


def _spread(
    arrival: NDArray[np.float64],
    source: SourceFile,
    options: TraceOptions,
    warnings: list[tuple[str, str]],
) -> NDArray[np.float64]:
    step = grid_step_s(arrival) if source.resolution_s is None else source.resolution_s
    if step is None:
        return arrival
    if not options.spread_quantised:
        text = f"time stamps lie on a grid of {step:g} s and were kept as bursts on request"
        warnings.append(("QUANTISED_STAMPS_KEPT", text))
        return arrival
    rng = np.random.default_rng([options.seed, int(source.sha256[:16], 16)])
    text = (
        f"time stamps lie on a grid of {step:g} s; requests were spread uniformly inside each "
        f"bucket with seed {options.seed}"
    )
    warnings.append(("QUANTISED_STAMPS_SPREAD", text))
    return spread(arrival, step_s=step, rng=rng)
