"""Runs of two arms, cut and judged as a study would judge them: the product's own comparison.

A source of runs (calibration_queue.py, calibration_h200.py, calibration_table.py) gives two runs an
arm on the same arrivals; a plan says how a side's minutes are spent on them.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.domain.comparison import GainVerdict, compare_windows
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_windows import WindowResult
from tasks.domain.noise_floor import noise_floor, repeat_pairs
from tests.fakes.window_measurements import template

Floats = NDArray[np.float64]
SHORTEST_LATER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Requests of one run by due time; shape (n,). e2e_s is None where no queue is carried over."""

    due_s: Floats
    good: NDArray[np.bool_]
    e2e_s: Floats | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arms:
    """Two runs an arm, all on the same arrivals."""

    a: tuple[Run, Run]
    b: tuple[Run, Run]

    def swapped(self) -> "Arms":
        return Arms(a=self.b, b=self.a)


class Source(Protocol):
    """Something that runs studies.

    effects: names of the challengers, the first is no effect. least_window_s: the shortest window
    that its runs may be cut into.
    """

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    @property
    def effects(self) -> tuple[str, ...]: ...

    @property
    def least_window_s(self) -> float: ...

    def study(self, rng: np.random.Generator, *, first_s: float, later_s: float) -> list[Arms]:
        """Return the arms of one study, one entry an effect; the second runs may be shorter."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a side's minutes are spent: later_frac of them on the second run, A B B A."""

    name: str
    window_s: float
    later_frac: float

    def seconds(self, minutes: float) -> tuple[float, float]:
        """Return the seconds of the first and of the second run, whole windows."""
        total = 60.0 * minutes
        least = min(SHORTEST_LATER_S, total / 2)
        later = math.floor(max(least, self.later_frac * total) / self.window_s) * self.window_s
        return math.floor((total - later) / self.window_s) * self.window_s, later


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """better: interval above 0 and gain above the A/A floor, at a least gain of 0."""

    gain_frac: float | None
    better: bool

    def promoted(self, least_frac: float) -> bool:
        """Tell whether a study of this least gain promotes (GainVerdict.BETTER)."""
        return self.better and self.gain_frac is not None and self.gain_frac >= least_frac


def judge(arms: Arms, plan: Plan, *, minutes: float, seed: int) -> Judged:
    """Return what the product's comparison says of b against a."""
    spans = plan.seconds(minutes)
    a, b = (
        [_measured(run, plan.window_s, spans[i], i) for i, run in enumerate(runs)]
        for runs in (arms.a, arms.b)
    )
    found = compare_windows(
        a,
        b,
        min_gain_frac=0.0,
        noise_floor_frac=noise_floor([*repeat_pairs(a), *repeat_pairs(b)]),
        seed=seed,
        min_window_s=plan.window_s,
    )
    return Judged(gain_frac=found.gain_frac, better=found.verdict is GainVerdict.BETTER)


def _measured(run: Run, window_s: float, seconds: float, repeat: int) -> Measurement:
    """Return the windows of a run's first seconds as a measurement."""
    edges = np.arange(round(seconds / window_s) + 1) * window_s
    inside = run.due_s < edges[-1]
    due = np.histogram(run.due_s[inside], edges)[0].tolist()
    good = np.histogram(run.due_s[inside & run.good], edges)[0].tolist()
    windows = tuple(
        WindowResult(
            start_s=float(edges[i]),
            end_s=float(edges[i + 1]),
            n=due[i],
            n_good=good[i],
            goodput_req_s=good[i] / window_s,
            diverged=False,
        )
        for i in range(len(due))
    )
    made = template()
    tail = made.e2e
    if run.e2e_s is not None:  # a single request covers no p99, so its maximum is the tail
        tail = replace(tail, max_s=float(np.quantile(run.e2e_s[inside], 0.99)))
    return replace(
        made,
        load_point=replace(made.load_point, duration_s=seconds, repeat=repeat),
        windows=windows,
        n_requests=sum(due),
        goodput_req_s=sum(good) / seconds,
        e2e=tail,
        schedule_sha256="s",
        flags=(),
    )
