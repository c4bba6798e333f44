"""Simulated queue: first come first served on some slots, arrivals by gamma gaps of CV 1.5.

A request is good when it waits at most 1 s. The engine's speed drifts by 1 % from run to run and
each request's service jitters by 5 %. Requests queue behind each other, so those of one window are
as dependent as on a real engine.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.calibration_study import Arms, Floats, Run

RATE_REQ_S = 4.0
GAP_CV = 1.5
BUSY_FRAC = 0.8
WAIT_LIMIT_S = 1.0
DRIFT, JITTER = 0.01, 0.05
SPEEDS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.08, 1.12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """slots: requests served at once. spread: of the logarithm of a service time."""

    name: str
    slots: int
    spread: float
    least_window_s: float = 1.0

    @property
    def service_s(self) -> float:
        """Mean seconds of a request on one slot at speed 1."""
        return BUSY_FRAC * self.slots / RATE_REQ_S

    @property
    def about(self) -> str:
        return (
            f"simulated queue, {RATE_REQ_S:g} req/s with gaps of CV {GAP_CV:g} on {self.slots} "
            f"slots, {self.service_s:.1f} s a request (spread {self.spread:g}), speed drifts by "
            f"{DRIFT:.0%} from run to run"
        )

    @property
    def effects(self) -> tuple[str, ...]:
        return ("A/A", *(f"speed x {speed:g}" for speed in SPEEDS[1:]))

    def study(self, rng: np.random.Generator, *, first_s: float, later_s: float) -> list[Arms]:
        shape = 1 / GAP_CV**2
        n = int(2 * RATE_REQ_S * first_s) + 100
        due = np.cumsum(rng.gamma(shape, 1 / (RATE_REQ_S * shape), n))
        due = due[due < first_s]
        normal = rng.normal(-(self.spread**2) / 2, self.spread, due.size)
        service = np.exp(normal) * self.service_s
        k = int(np.searchsorted(due, later_s))

        def runs(speed: float) -> tuple[Run, Run]:
            return self._run(rng, due, service / speed), self._run(
                rng, due[:k], service[:k] / speed
            )

        a = runs(1.0)
        return [Arms(a=a, b=runs(speed)) for speed in SPEEDS]

    def _run(self, rng: np.random.Generator, due: Floats, service: Floats) -> Run:
        taken = service * np.exp(rng.normal(0, DRIFT) + rng.normal(0, JITTER, due.size))
        free = [0.0] * self.slots
        begins = np.empty(due.size)
        for i, (at, seconds) in enumerate(zip(due.tolist(), taken.tolist(), strict=True)):
            begins[i] = max(at, free[0])
            heapq.heapreplace(free, begins[i] + seconds)
        wait = begins - due
        return Run(due_s=due, good=wait <= WAIT_LIMIT_S, e2e_s=wait + taken)


QUEUES = (
    Queue(name="queue", slots=24, spread=0.8),
    Queue(name="short-queue", slots=12, spread=0.5),
)
