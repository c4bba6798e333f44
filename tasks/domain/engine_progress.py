"""Whether an engine moves: the budget of a start, and the counters of a running one.

Clocks, sizes and counters are given; nothing is read here.
"""

from dataclasses import dataclass, field
from enum import StrEnum

CPU_FRAC_OF_WORK = 0.2
"""CPU seconds per second of the process tree that count as work.

An idle vLLM 0.32 ticks at a few per cent of a core; loading and compiling keep one busy.
"""

CPU_WINDOW_S = 2.0
"""Shortest span over which the CPU rate is judged."""


class StartVerdict(StrEnum):
    """What the budget says of a start."""

    WAIT = "wait"
    NO_PROGRESS = "no_progress"
    OVER_LIMIT = "over_limit"


@dataclass(slots=True, kw_only=True)
class StartBudget:
    """Seconds that a start may go on: timeout_s since the last progress, limit_s in all.

    Times are seconds since the start.
    """

    timeout_s: float
    limit_s: float
    last_progress_s: float = 0.0
    _log_lines: int = field(default=0)
    _cpu_s: float = field(default=0.0)
    _cpu_at_s: float = field(default=0.0)

    def observe(self, now_s: float, *, log_lines: int, cpu_s: float | None) -> StartVerdict:
        """Return the verdict after seeing the number of telling log lines and the CPU seconds."""
        if log_lines > self._log_lines:
            self._log_lines = log_lines
            self.last_progress_s = now_s
        if cpu_s is not None and now_s - self._cpu_at_s >= CPU_WINDOW_S:
            if cpu_s - self._cpu_s >= CPU_FRAC_OF_WORK * (now_s - self._cpu_at_s):
                self.last_progress_s = now_s
            self._cpu_s, self._cpu_at_s = cpu_s, now_s
        if now_s >= self.limit_s:
            return StartVerdict.OVER_LIMIT
        if now_s - self.last_progress_s >= self.timeout_s:
            return StartVerdict.NO_PROGRESS
        return StartVerdict.WAIT


class ProgressState(StrEnum):
    """What two readings of an engine's counters say."""

    IDLE = "idle"
    MOVING = "moving"
    STALLED = "stalled"
    RESTARTED = "restarted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """A reading of /metrics; None where the engine does not report it.

    running, waiting: requests now. prompt_tokens, generation_tokens: totals since the start.
    """

    running: float | None
    waiting: float | None
    prompt_tokens: float | None
    generation_tokens: float | None


def progress_state(previous: EngineCounters, now: EngineCounters) -> ProgressState:
    """Return whether the engine moved between two readings.

    STALLED: requests were in it at both readings and no token was read or made between them. A
    total that fell means that another process answers. The caller picks the span between the
    readings: longer than the longest step of the engine.
    """
    totals = (
        (previous.prompt_tokens, now.prompt_tokens),
        (previous.generation_tokens, now.generation_tokens),
    )
    known = [(a, b) for a, b in totals if a is not None and b is not None]
    if any(b < a for a, b in known):
        return ProgressState.RESTARTED
    if any(b > a for a, b in known):
        return ProgressState.MOVING
    before, after = _requests(previous), _requests(now)
    if len(known) < len(totals) or before is None or after is None:
        return ProgressState.UNKNOWN
    return ProgressState.STALLED if before > 0 and after > 0 else ProgressState.IDLE


def _requests(counters: EngineCounters) -> float | None:
    if counters.running is None or counters.waiting is None:
        return None
    return counters.running + counters.waiting
