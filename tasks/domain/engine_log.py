"""One line of an engine's log, without the prefixes that Ray, containers and vLLM put before it.

Knows the shapes of prefixes from V0 to 0.32; what a message means is known elsewhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s+")
_PROCESS = re.compile(r"\((?P<name>[A-Za-z_][\w.-]*) pid=(?P<pid>\d+)(?:, ip=[^)]*)?\) ?")
_RANK = re.compile(r"\[rank\d+\]: ?")
_HEAD = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<clock>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? "
    r"\[?(?P<source>[\w./<>-]+:\d+)\] ?"
)
_UVICORN = re.compile(r"(?P<level>INFO|WARNING|ERROR):\s{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A message with what its prefixes said; None where they did not say it.

    process: for example ``EngineCore`` or ``Worker``. clock: ``MM-DD HH:MM:SS`` as printed, without
    a year. text keeps the message's own indentation.
    """

    text: str
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    clock: str | None = None
    source: str | None = None


def parse_line(raw: str) -> LogLine:
    """Return the line split into prefixes and message."""
    text = _ANSI.sub("", raw.rstrip())
    process: str | None = None
    pid: int | None = None
    while match := _STAMP.match(text) or _PROCESS.match(text) or _RANK.match(text):
        if match.re is _PROCESS:
            process, pid = match["name"], int(match["pid"])
        text = text[match.end() :]
    head = _HEAD.match(text)
    if head is not None:
        return LogLine(
            text=text[head.end() :],
            process=process,
            pid=pid,
            level=head["level"],
            clock=head["clock"],
            source=head["source"],
        )
    level = _UVICORN.match(text)
    if level is not None:
        return LogLine(text=text[level.end() :], process=process, pid=pid, level=level["level"])
    return LogLine(text=text, process=process, pid=pid)


def log_lines(text: str) -> Iterator[LogLine]:
    """Yield the parsed lines; a carriage return (progress bars) ends a line too."""
    for raw in re.split(r"[\r\n]+", text):
        if raw.strip():
            yield parse_line(raw)


def engine_index(process: str | None) -> int | None:
    """Return the data-parallel index in names such as ``EngineCore_1`` or ``EngineCore_DP1``."""
    match = re.fullmatch(r"EngineCore_(?:DP)?(\d+)", process or "")
    return None if match is None else int(match[1])


_NOT_PROGRESS = re.compile(
    r"No available shared memory broadcast block found"
    r"|\"(?:GET|POST) /\S* HTTP/1\.\d\" \d{3}"
    r"|Waiting for \d+ (?:local|remote)"
)


def tells_progress(line: LogLine) -> bool:
    """Tell whether a line shows that a start moves on.

    vLLM repeats some lines while it only waits, and logs every request of whoever asks whether it
    is ready; neither is progress.
    """
    return bool(line.text.strip()) and not _NOT_PROGRESS.search(line.text)
