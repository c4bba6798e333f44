"""A trace out of a server's own log: vLLM's request log, else the access log.

A log tells when requests came; how long they were only where the server was told to log it. What
it does not tell is asked of the caller, never guessed.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.assemble import SourceFile, assemble
from tasks.adapters.trace_files.clock import read_clock
from tasks.adapters.trace_files.faults import Fault, mark
from tasks.adapters.trace_files.line_blocks import LineReader
from tasks.adapters.trace_files.log_clock import LogClock, log_clock, stamp_of
from tasks.adapters.trace_files.log_lines import is_log_line, log_event, logged_limit, plain_line
from tasks.adapters.trace_files.log_requests import BLOCK_TOKENS, RequestColumns, RequestLog
from tasks.adapters.trace_files.options import TraceOptions
from tasks.adapters.trace_files.row_block import RowBlock, row_block
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace

Warnings = list[tuple[str, str]]

STAMPS_ADVICE = (
    "start vLLM with --logging-config.formatter json (0.32 and later), give uvicorn a log format "
    "with %(asctime)s (--log-config-file), or take the log with 'docker logs --timestamps' or "
    "'kubectl logs --timestamps'"
)
LENGTHS_ADVICE = (
    "log them (--enable-log-requests with VLLM_LOGGING_LEVEL=DEBUG for prompts; outputs are logged "
    "by chat with --enable-log-outputs, or exact where clients set ignore_eos), or state what "
    "every such request is to count as with --prompt-tokens and --output-tokens"
)
ACCESS_TEXT = (
    "uvicorn writes an access line when the answer begins: about the arrival of a streamed answer, "
    "the end of any other"
)
DELTAS_TEXT = "output lengths were summed over logged deltas; tokens without text are not in them"


def is_server_log(lines: list[str]) -> bool:
    """Tell whether the first lines of a file are those of a server's log."""
    return any(is_log_line(line) for line in lines)


def load_server_log(path: Path, options: TraceOptions) -> Trace:
    """Return the trace of the requests that a log tells of.

    Raises:
        TraceError: NO_REQUESTS_LOGGED, STAMPS_NOT_LOGGED or LENGTHS_NOT_LOGGED, each naming what
            to turn on; else as for every trace.
    """
    reader = LineReader(path)
    log = RequestLog()
    for line, message, own in _lines(reader):
        event = log_event(message)
        if event is not None:
            log.take(event, line, stamp_of(message, own))
        elif log.limit is None:
            log.limit = logged_limit(message)
    if not log.requests and not log.access_lines:
        raise TraceError(
            f"trace file {path} is a server log that tells of no answered generating request; "
            f"needed vLLM's --enable-log-requests, or access lines (no "
            f"--disable-uvicorn-access-log)",
            code="NO_REQUESTS_LOGGED",
        )
    return _trace(path, reader.sha256, log, log.columns(), options)


def _lines(reader: LineReader) -> Iterator[tuple[int, str, str | None]]:
    for block in reader.blocks():
        for number, line in enumerate(block.lines, start=block.first_line):
            message, own = plain_line(line.rstrip("\r"))
            yield number, message, own


def _trace(
    path: Path, sha256: str, log: RequestLog, columns: RequestColumns, options: TraceOptions
) -> Trace:
    timed = log_clock(columns.stamps, columns.lines, zone_given=options.timezone is not None)
    _refuse_unstamped(path, columns, timed)
    warnings: Warnings = [*timed.warnings]
    if not log.requests:
        warnings.append(("ACCESS_LOG_STAMPS", ACCESS_TEXT))
    if log.from_deltas:
        warnings.append(("OUTPUT_FROM_DELTAS", DELTAS_TEXT))
    rows = _rows(path, columns, timed, options, warnings)
    read = read_clock(
        rows.stamps,
        rows.faults,
        unit="s",
        options=options if timed.has_year else replace(options, timezone=None),
    )
    if not timed.has_year:  # the year is made up, so neither origin nor zone may be told
        read = replace(read, zero_unix_s=None, warnings=())
    trace = assemble(
        rows,
        replace(read, warnings=(*read.warnings, *warnings)),
        SourceFile(
            path=path,
            format="vllm-request-log" if log.requests else "access-log",
            sha256=sha256,
            block_tokens=BLOCK_TOKENS,
            resolution_s=timed.resolution_s,
        ),
        options,
    )
    if not columns.failed:
        return trace
    dropped = (*trace.notes.dropped, ("failed", columns.failed))
    whole = trace.notes.rows + columns.failed
    return replace(trace, notes=replace(trace.notes, rows=whole, dropped=dropped))


def _refuse_unstamped(path: Path, columns: RequestColumns, timed: LogClock) -> None:
    missing = timed.stamps.faults == Fault.STAMP_MISSING
    if not missing.size or not missing.all():
        return
    raise TraceError(
        f"trace file {path} tells of {missing.size} requests and has no time stamp on any of "
        f"their lines (the first is line {columns.lines[0]}); needed to know when they came; "
        f"{STAMPS_ADVICE}",
        code="STAMPS_NOT_LOGGED",
    )


def _rows(
    path: Path, columns: RequestColumns, timed: LogClock, options: TraceOptions, warnings: Warnings
) -> RowBlock:
    prompt, output = columns.prompt, columns.output
    no_prompt, no_output = np.isnan(prompt), np.isnan(output)
    faults = np.zeros(prompt.size, dtype=np.uint8)
    for missing, name, stated, fault in (
        (no_prompt, "prompt", options.prompt_tokens, Fault.PROMPT_NOT_LOGGED),
        (no_output, "output", options.output_tokens, Fault.OUTPUT_NOT_LOGGED),
    ):
        if stated is None:
            mark(faults, missing, fault)
        elif missing.any():
            text = (
                f"{int(missing.sum())} {name} lengths are not logged and count as {stated} tokens"
            )
            warnings.append((f"{name.upper()}_LENGTHS_ASSUMED", f"{text}, as stated"))
    _refuse_lengthless(path, no_prompt, no_output, faults, options)
    if options.prompt_tokens is not None:
        prompt = np.where(no_prompt, options.prompt_tokens, prompt)
    if options.output_tokens is not None:
        # A stated length is no longer than the request's own max_tokens, where that is logged.
        stated_output = np.fmin(float(options.output_tokens), columns.max_tokens)
        output = np.where(no_output, stated_output, output)
    return row_block(
        lines=columns.lines,
        stamps=timed.stamps,
        prompt=prompt,
        output=output,
        faults=faults,
        blocks=columns.blocks,
    )


def _refuse_lengthless(
    path: Path,
    no_prompt: NDArray[np.bool_],
    no_output: NDArray[np.bool_],
    faults: NDArray[np.uint8],
    options: TraceOptions,
) -> None:
    unknown = int((faults != Fault.NONE).sum())
    if unknown <= options.max_bad_frac * faults.size:
        return
    raise TraceError(
        f"trace file {path} tells of {faults.size} requests, {int(no_prompt.sum())} of them "
        f"without prompt length and {int(no_output.sum())} without output length; needed both of "
        f"all but {100 * options.max_bad_frac:g} %; {LENGTHS_ADVICE}",
        code="LENGTHS_NOT_LOGGED",
    )
