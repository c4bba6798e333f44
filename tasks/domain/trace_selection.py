"""Parts of a trace by explicit rules: rows, requests that fit a context, gaps made short.

Nothing here happens by itself: each function says in the result's notes what it did.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace, TraceNotes

LARGEST_SILENT_DROP_FRAC = 0.05


def select_rows(trace: Trace, rows: NDArray[np.int64], *, source: str | None = None) -> Trace:
    """Return the requests of the sorted row numbers, their arrivals starting at 0 again.

    The file's hash stays, since it names the file; ``source`` says which part this is. The
    origin is dropped unless the first row is kept.

    Raises:
        TraceError: if no row is selected.
    """
    if rows.size == 0:
        raise TraceError(
            f"no request of {trace.source} ({len(trace)} requests over {trace.duration_s:.0f} s) "
            f"is in the selection {source or 'given'}; needed at least one; widen the window or "
            f"the limit"
        )
    kept: list[int] = rows.tolist()
    blocks, session = trace.prefix_blocks, trace.session
    return replace(
        trace,
        arrival_s=trace.arrival_s[rows] - trace.arrival_s[rows[0]],
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        prefix_blocks=None if blocks is None else tuple(blocks[row] for row in kept),
        session=None if session is None else tuple(session[row] for row in kept),
        source=source or trace.source,
        origin_utc=trace.origin_utc if kept[0] == 0 else None,
    )


def fit_context(
    trace: Trace, max_model_len: int, *, max_dropped_frac: float = LARGEST_SILENT_DROP_FRAC
) -> Trace:
    """Return the requests with prompt + output <= max_model_len; longer ones are dropped whole.

    Nothing is clipped: clipping would change the workload between trials. Use the smallest
    max_model_len of a study's space, so that all its trials get the same requests.

    Raises:
        TraceError: TOO_MANY_OVER_CONTEXT if a larger share than ``max_dropped_frac`` would go;
            the caller confirms by raising that share.
    """
    fits = trace.prompt_tokens + trace.output_tokens <= max_model_len
    over = int((~fits).sum())
    if over == 0:
        return trace
    over_frac = over / len(trace)
    if over_frac > max_dropped_frac:
        raise TraceError(
            f"{over} of {len(trace)} requests ({100 * over_frac:.1f} %) of {trace.source} have "
            f"prompt + output above max_model_len={max_model_len}, allowed "
            f"max_dropped_frac={max_dropped_frac}; raise max_model_len, or max_dropped_frac to "
            f"confirm that the rest still is the traffic meant",
            code="TOO_MANY_OVER_CONTEXT",
        )
    said = f"{over} requests with prompt + output above max_model_len={max_model_len} dropped"
    notes = with_warning(trace.notes, "OVER_CONTEXT_DROPPED", said)
    kept = select_rows(trace, np.flatnonzero(fits))
    return replace(kept, notes=replace(notes, dropped=(*notes.dropped, ("over_context", over))))


def dropped_frac(notes: TraceNotes) -> float:
    """Return the share (0..1) of the file's rows that were dropped on purpose."""
    return sum(count for _, count in notes.dropped) / notes.rows if notes.rows else 0.0


def compress_gaps(trace: Trace, *, above_s: float = 600.0, to_s: float = 60.0) -> Trace:
    """Return the trace with every gap longer than ``above_s`` shortened to ``to_s``.

    A replay of the gap would only wait. The longest original gap is named in the notes.

    Raises:
        TraceError: if ``to_s`` is not between 0 and ``above_s``.
    """
    if not 0 <= to_s <= above_s:
        raise TraceError(
            f"to_s={to_s} with above_s={above_s} would lengthen gaps; needed 0 <= to_s <= above_s"
        )
    gaps = np.diff(trace.arrival_s)
    long = gaps > above_s
    if not long.any():
        return trace
    said = (
        f"{int(long.sum())} gaps above {above_s:g} s compressed to {to_s:g} s; "
        f"the longest was {float(gaps.max()):g} s"
    )
    arrival = np.concatenate([[0.0], np.cumsum(np.where(long, to_s, gaps))])
    return replace(
        trace, arrival_s=arrival, notes=with_warning(trace.notes, "GAP_COMPRESSED", said)
    )


def with_warning(notes: TraceNotes, code: str, sentence: str) -> TraceNotes:
    """Return the notes with one more warning."""
    return replace(notes, warnings=(*notes.warnings, (code, sentence)))
