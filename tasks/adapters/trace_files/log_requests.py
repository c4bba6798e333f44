"""Requests gathered from the lines of a server's log, and then as columns.

A request's arrival, prompt and answer stand on different lines; an access line is all there is of
one. Token counts and block ids are kept, never text.
"""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.log_clock import LogStamp, StampColumns
from tasks.adapters.trace_files.log_lines import LogEvent

BLOCK_TOKENS = 64  # of the prefix blocks made from logged prompts


@dataclass(slots=True, kw_only=True)
class LoggedRequest:
    """One request as far as the log tells; a length is None where it does not.

    exact: the answer's length is known from the request itself (ignore_eos).
    """

    line: int
    stamp: LogStamp | None
    prompt: int | None = None
    output: int | None = None
    max_tokens: int | None = None
    exact: bool = False
    blocks: tuple[int, ...] = ()
    failed: bool = False


@dataclass(slots=True)
class RequestLog:
    """What the lines read so far say.

    limit: --max-log-len, at which logged prompts are cut. from_deltas: whether an answer's length
    was summed over its deltas.
    """

    requests: dict[str, LoggedRequest] = field(default_factory=dict)
    access_lines: "array[int]" = field(default_factory=lambda: array("q"))
    access_stamps: StampColumns = field(default_factory=StampColumns)
    access_failed: int = 0
    limit: int | None = None
    from_deltas: bool = False
    block_ids: dict[tuple[int, tuple[str, ...]], int] = field(default_factory=dict)

    def take(self, event: LogEvent, line: int, stamp: LogStamp | None) -> None:
        """Take what one line says."""
        if event.kind == "access" and not event.ok:
            self.access_failed += 1
            return
        if event.kind == "access":
            self.access_lines.append(line)
            self.access_stamps.append(stamp)
            return
        if event.kind == "foreign":  # its prompt may have been logged the line before
            self.requests.pop(event.request, None)
            return
        request = self.requests.get(event.request)
        if event.kind in ("received", "prompt") and request is None:
            request = LoggedRequest(line=line, stamp=stamp)
            self.requests[event.request] = request
        if request is None:  # it came before the log began, or belongs to no generation
            return
        if event.kind == "received":
            request.max_tokens = event.max_tokens
            if event.ignore_eos and event.max_tokens is not None:
                request.output, request.exact = event.max_tokens, True
        if event.prompt_ids is not None:
            self._prompt(request, event.prompt_ids)
        if event.output_tokens is not None and not request.exact:
            before = request.output if event.is_delta and request.output is not None else 0
            request.output = before + event.output_tokens
            self.from_deltas |= event.is_delta
        request.failed |= event.kind == "failed"

    def columns(self) -> "RequestColumns":
        """Return the requests; access lines count only where no request was logged itself."""
        return _request_columns(self) if self.requests else _access_columns(self)

    def _prompt(self, request: LoggedRequest, text: str) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestColumns:
    """The requests that did not fail, in the file's order; a length is NaN where it is not logged.

    Shape (n,) each. failed: how many more there were.
    """

    lines: NDArray[np.int64]
    stamps: StampColumns
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    max_tokens: NDArray[np.float64]
    blocks: list[tuple[int, ...]] | None
    failed: int


def _request_columns(log: RequestLog) -> RequestColumns:
    kept = [request for request in log.requests.values() if not request.failed]
    blocks = [request.blocks for request in kept]
    return RequestColumns(
        lines=np.array([request.line for request in kept], dtype=np.int64),
        stamps=StampColumns(request.stamp for request in kept),
        prompt=_numbers([request.prompt for request in kept]),
        output=_numbers([request.output for request in kept]),
        max_tokens=_numbers([request.max_tokens for request in kept]),
        blocks=blocks if any(blocks) else None,
        failed=len(log.requests) - len(kept),
    )


def _access_columns(log: RequestLog) -> RequestColumns:
    unknown = np.full(len(log.access_lines), np.nan)
    return RequestColumns(
        lines=np.array(log.access_lines, dtype=np.int64),
        stamps=log.access_stamps,
        prompt=unknown,
        output=unknown.copy(),
        max_tokens=unknown,
        blocks=None,
        failed=log.access_failed,
    )


def _numbers(values: list[int | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
