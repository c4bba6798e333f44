"""A trace out of a server's own log: vLLM's request log, else the access log.

A log tells when requests came; how long they were only where the server was told to log it. What
it does not tell is asked of the caller, never guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.assemble import SourceFile, assemble
from tasks.adapters.trace_files.clock import read_clock
from tasks.adapters.trace_files.faults import Fault
from tasks.adapters.trace_files.line_blocks import LineReader
from tasks.adapters.trace_files.log_clock import LogClock, LogStamp, log_clock, stamp_of
from tasks.adapters.trace_files.log_lines import (
    LogEvent,
    is_log_line,
    log_event,
    logged_limit,
    plain_line,
)
from tasks.adapters.trace_files.options import TraceOptions
from tasks.adapters.trace_files.row_block import RowBlock, row_block
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace

BLOCK_TOKENS = 64  # of the prefix blocks made from logged prompts
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


@dataclass(slots=True, kw_only=True)
class _Request:
    line: int
    stamp: LogStamp | None
    prompt: int | None = None
    output: int | None = None
    max_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    failed: bool = False


@dataclass(slots=True)
class _Log:
    """What the lines read so far say."""

    requests: dict[str, _Request] = field(default_factory=dict)
    access: list[_Request] = field(default_factory=list)
    limit: int | None = None
    from_deltas: bool = False
    block_ids: dict[tuple[int, tuple[str, ...]], int] = field(default_factory=dict)

    def take(self, event: LogEvent, line: int, stamp: LogStamp | None) -> None:
        """Take what one line says."""
        if event.kind == "access":
            self.access.append(_Request(line=line, stamp=stamp, failed=not event.ok))
            return
        if event.kind == "foreign":  # its prompt may have been logged the line before
            self.requests.pop(event.request, None)
            return
        request = self.requests.get(event.request)
        if event.kind in ("received", "prompt") and request is None:
            request = _Request(line=line, stamp=stamp)
            self.requests[event.request] = request
        if request is None:  # it came before the log began, or belongs to no generation
            return
        if event.kind == "received":
            request.max_tokens = event.max_tokens
            request.output = event.max_tokens if event.ignore_eos else request.output
        if event.prompt_ids is not None:
            self._prompt(request, event.prompt_ids)
        if event.output_tokens is not None:
            before = request.output if event.is_delta and request.output is not None else 0
            request.output = before + event.output_tokens
            self.from_deltas |= event.is_delta
        request.failed |= event.kind == "failed"

    def _prompt(self, request: _Request, text: str) -> None:
        ids = text.split(", ") if text.strip() else []
        if self.limit is not None and len(ids) >= self.limit:
            return  # cut by --max-log-len: at least this long, not known how long
        request.prompt = len(ids)
        blocks: list[int] = []
        before = 0
        for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            key = (before, tuple(ids[start : start + BLOCK_TOKENS]))
            before = self.block_ids.setdefault(key, len(self.block_ids) + 1)
            blocks.append(before)
        request.blocks = tuple(blocks)


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
    log = _Log()
    for line, message, own in _lines(reader):
        event = log_event(message)
        if event is not None:
            log.take(event, line, stamp_of(message, own))
        elif log.limit is None:
            log.limit = logged_limit(message)
    requests = [*log.requests.values()] or log.access
    if not requests:
        raise TraceError(
            f"trace file {path} is a server log that tells of no generating request; needed vLLM's "
            f"--enable-log-requests, or access lines (no --disable-uvicorn-access-log)",
            code="NO_REQUESTS_LOGGED",
        )
    return _trace(path, reader.sha256, log, requests, options)


def _lines(reader: LineReader) -> Iterator[tuple[int, str, str | None]]:
    for block in reader.blocks():
        for number, line in enumerate(block.lines, start=block.first_line):
            message, own = plain_line(line.rstrip("\r"))
            yield number, message, own


def _trace(
    path: Path, sha256: str, log: _Log, requests: list[_Request], options: TraceOptions
) -> Trace:
    kept = [request for request in requests if not request.failed]
    failed = len(requests) - len(kept)
    timed = log_clock(
        [request.stamp for request in kept],
        [request.line for request in kept],
        zone_given=options.timezone is not None,
    )
    _refuse_unstamped(path, kept, timed)
    warnings: Warnings = [*timed.warnings]
    if not log.requests:
        warnings.append(("ACCESS_LOG_STAMPS", ACCESS_TEXT))
    if log.from_deltas:
        warnings.append(("OUTPUT_FROM_DELTAS", DELTAS_TEXT))
    rows = _rows(path, kept, timed, options, warnings)
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
    if not failed:
        return trace
    dropped = (*trace.notes.dropped, ("failed", failed))
    return replace(trace, notes=replace(trace.notes, rows=len(requests), dropped=dropped))


ACCESS_TEXT = (
    "uvicorn writes an access line when the answer begins: about the arrival of a streamed answer, "
    "the end of any other"
)
DELTAS_TEXT = "output lengths were summed over logged deltas; tokens without text are not in them"


def _refuse_unstamped(path: Path, requests: list[_Request], timed: LogClock) -> None:
    missing = timed.stamps.faults == Fault.STAMP_MISSING
    if not requests or not missing.all():
        return
    raise TraceError(
        f"trace file {path} tells of {len(requests)} requests and has no time stamp on any of "
        f"their lines (the first is line {requests[0].line}); needed to know when they came; "
        f"{STAMPS_ADVICE}",
        code="STAMPS_NOT_LOGGED",
    )


def _rows(
    path: Path,
    requests: list[_Request],
    timed: LogClock,
    options: TraceOptions,
    warnings: Warnings,
) -> RowBlock:
    no_prompt = np.array([request.prompt is None for request in requests], dtype=np.bool_)
    no_output = np.array([request.output is None for request in requests], dtype=np.bool_)
    faults = np.zeros(len(requests), dtype=np.uint8)
    for missing, name, stated, fault in (
        (no_prompt, "prompt", options.prompt_tokens, Fault.PROMPT_NOT_LOGGED),
        (no_output, "output", options.output_tokens, Fault.OUTPUT_NOT_LOGGED),
    ):
        if not missing.any():
            continue
        if stated is None:
            faults[missing & (faults == Fault.NONE)] = fault
            continue
        text = f"{int(missing.sum())} {name} lengths are not logged and count as {stated} tokens"
        warnings.append((f"{name.upper()}_LENGTHS_ASSUMED", f"{text}, as stated"))
    _refuse_lengthless(path, no_prompt, no_output, faults, options)
    has_blocks = any(request.blocks for request in requests)
    return row_block(
        lines=np.array([request.line for request in requests], dtype=np.int64),
        stamps=timed.stamps,
        prompt=np.array([_known(r.prompt, options.prompt_tokens) for r in requests]),
        output=np.array([_stated_output(r, options.output_tokens) for r in requests]),
        faults=faults,
        blocks=[request.blocks for request in requests] if has_blocks else None,
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


def _known(logged: int | None, stated: int | None) -> float:
    return float(logged if logged is not None else stated if stated is not None else np.nan)


def _stated_output(request: _Request, stated: int | None) -> float:
    """Return the output's length; a stated one is no longer than the request's own max_tokens."""
    if request.output is None and stated is not None and request.max_tokens is not None:
        return float(min(stated, request.max_tokens))
    return _known(request.output, stated)
