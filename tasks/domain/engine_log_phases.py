"""The phases of an engine's start, told from its log lines."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.domain.engine_log import LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePhase:
    """A phase that the start has just entered, seconds after the process was started."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """A phase by the log's own clock (whole seconds).

    at_s: seconds from the first stamped line. duration_s: until the next phase; None for the last.
    """

    name: str
    at_s: float
    duration_s: float | None


PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("arguments", re.compile(r"^non-default args")),
    ("engine core", re.compile(r"^Initializing a V\d LLM engine")),
    ("weights", re.compile(r"^Starting to load model|^Loading model from|Loading weights took")),
    (
        "torch.compile",
        re.compile(
            r"torch\.compile (?:took|takes)|Compiling a graph|Dynamo bytecode"
            r"|^Warming up model for the compilation|Using cache directory"
        ),
    ),
    ("kv cache", re.compile(r"KV cache size:|# \w+ blocks:|^Available KV cache memory")),
    ("graph capture", re.compile(r"^Capturing CUDA graphs|^Graph capturing")),
    ("engine ready", re.compile(r"^init engine \(")),
    ("server", re.compile(r"^Starting vLLM|^Application startup complete")),
)
"""(name, what its lines look like); the latest line that fits one tells the current phase."""


def phase_of(line: LogLine) -> str | None:
    """Return the phase that a line belongs to, or None where it says nothing of it."""
    return next((name for name, pattern in PHASES if pattern.search(line.text)), None)


def last_phase(lines: Iterable[LogLine]) -> str | None:
    """Return the phase of the last line that tells one."""
    names = [name for line in lines if (name := phase_of(line)) is not None]
    return names[-1] if names else None


def phase_times(lines: Iterable[LogLine]) -> tuple[PhaseTime, ...]:
    """Return when each phase was first seen, by the clock of the stamped lines."""
    origin: float | None = None
    now: float | None = None
    starts: dict[str, float] = {}
    for line in lines:
        if line.clock is not None:
            stamp = _seconds(line.clock)
            origin = stamp if origin is None else origin
            now = stamp
        name = phase_of(line)
        if name is not None and now is not None and origin is not None:
            starts.setdefault(name, max(0.0, now - origin))
    items = sorted(starts.items(), key=lambda item: item[1])
    ends = [at for _, at in items[1:]]
    return tuple(
        PhaseTime(name=name, at_s=at, duration_s=ends[i] - at if i < len(ends) else None)
        for i, (name, at) in enumerate(items)
    )


_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def _seconds(clock: str) -> float:
    """Return seconds since the year began for ``MM-DD HH:MM:SS``; the log prints no year."""
    date, time = clock.split(" ")
    month, day = (int(part) for part in date.split("-"))
    hour, minute, second = (int(part) for part in time.split(":"))
    days = _DAYS_BEFORE[month - 1] + day - 1
    return ((days * 24 + hour) * 60 + minute) * 60.0 + second
