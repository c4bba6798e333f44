"""Progress of a replay over all workers, for people and for early stopping."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tasks.adapters.load_client.load_job import LoadSample

RECENT_S = 10.0
REPORT_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """A replay so far.

    offered_req_s: the schedule's rate (open loop) or requests started a second (closed loop).
    achieved_req_s: successes a second since the start. total: requests of the schedule, None in a
    closed loop. ttft_*_s: nearest rank over requests that ended in the last 10 s, from their due
    time; None where there was none.
    """

    elapsed_s: float
    offered_req_s: float
    achieved_req_s: float
    in_flight: int
    done: int
    total: int | None
    errors: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None


class ProgressMeter:
    """Joins workers' samples, calls ``on_progress`` once a second and asks ``stop``."""

    def __init__(
        self,
        *,
        offered_req_s: float | None,
        total: int | None,
        on_progress: Callable[[ReplayProgress], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._offered_req_s = offered_req_s
        self._total = total
        self._on_progress = on_progress
        self._stop = stop
        self._latest: dict[int, LoadSample] = {}
        self._recent: deque[tuple[float, float]] = deque()
        self._reported_at_s = time.monotonic()

    def take(self, sample: LoadSample, worker: int = 0) -> bool:
        """Take a sample and return whether the run is to stop."""
        self._latest[worker] = sample
        self._recent.extend((sample.elapsed_s, ttft_s) for ttft_s in sample.first_tokens_s)
        now_s = time.monotonic()
        if self._on_progress is not None and now_s - self._reported_at_s >= REPORT_EVERY_S:
            self._reported_at_s = now_s
            self._on_progress(self.progress())
        return self._stop is not None and self._stop()

    def progress(self) -> ReplayProgress:
        """Return the joined progress."""
        samples = self._latest.values()
        elapsed_s = max((sample.elapsed_s for sample in samples), default=0.0)
        while self._recent and self._recent[0][0] < elapsed_s - RECENT_S:
            self._recent.popleft()
        done, errors = sum(s.done for s in samples), sum(s.errors for s in samples)
        sent = sum(sample.sent for sample in samples)
        rate = 1.0 / elapsed_s if elapsed_s > 0 else 0.0
        ttft_s = sorted(value for _, value in self._recent)
        return ReplayProgress(
            elapsed_s=elapsed_s,
            offered_req_s=sent * rate if self._offered_req_s is None else self._offered_req_s,
            achieved_req_s=(done - errors) * rate,
            in_flight=sum(sample.in_flight for sample in samples),
            done=done,
            total=self._total,
            errors=errors,
            ttft_p50_s=_nearest_rank(ttft_s, 0.50),
            ttft_p99_s=_nearest_rank(ttft_s, 0.99),
        )


def _nearest_rank(ordered: list[float], frac: float) -> float | None:
    return ordered[math.ceil(frac * len(ordered)) - 1] if ordered else None
