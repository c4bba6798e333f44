"""Replays a policy on a measured table: what it would have asked and how soon it was good.

Only measured points can be asked: the space is the table's own points, holes and all. Says
nothing about points that nobody measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.errors import InvalidParameterError
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation, RequestRows, observe_rows
from tasks.domain.search.protocol import Policy, Stop
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.slo import Slo

GOOD_FRAC = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablePoint:
    """One measurement: its limits, the GPU seconds it cost and its requests."""

    max_num_seqs: int
    max_num_batched_tokens: int
    order: int
    wall_s: float
    rows: RequestRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredTable:
    """Measurements of one load on one engine, in the order of measuring; the first is the default.

    engine_start_s: seconds that a start costs, None where not known. kv_tokens: the KV pool.
    """

    name: str
    points: tuple[TablePoint, ...]
    engine_start_s: float | None = None
    kv_tokens: int | None = None

    def space(self) -> SearchSpace:
        """Return the measured points, by value; a repeat is not a point of its own.

        Not in the order of measuring: whoever measured may have begun with what looked good.
        """
        first = self.points[0]
        measured = {_point(p, first) for p in self.points}
        points = sorted(measured, key=lambda p: (p.max_num_seqs, p.max_num_batched_tokens))
        return SearchSpace(
            points=tuple(points), reference=_point(first, first), kv_tokens=self.kv_tokens
        )

    def observation(self, point: Point, slo: Slo) -> Observation:
        """Return what the table says of a point: its first measurement, judged by the SLO."""
        found = next((p for p in self.points if _point(p, self.points[0]) == point), None)
        if found is None:
            raise InvalidParameterError(
                f"{point.text} was not measured in {self.name}; ask only points of the table"
            )
        return observe_rows(point, found.rows, slo=slo, gpu_s=found.wall_s)


def _point(measured: TablePoint, first: TablePoint) -> Point:
    seqs, tokens = measured.max_num_seqs, measured.max_num_batched_tokens
    changed = (seqs != first.max_num_seqs) + (tokens != first.max_num_batched_tokens)
    return Point(
        cell=ParameterValues(), max_num_seqs=seqs, max_num_batched_tokens=tokens, overrides=changed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One run of a policy. points and gpu_s count up to the first good point, the default apart.

    reached: whether it came to a good point before it stopped; if not, points counts all that the
    policy was left to ask after its stop. regrets: 1 - best so far / the table's best, after the
    default and after each further point, held once the policy has stopped.
    """

    seed: int
    reached: bool
    points: int
    gpu_s: float
    regrets: tuple[float, ...]
    asked: tuple[Point, ...]
    stop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayScore:
    """Medians and 90th percentiles over replays; regret by number of points after the default."""

    policy: str
    replays: int
    reached_frac: float
    points_median: float
    points_p90: float
    gpu_s_median: float
    gpu_s_p90: float
    regret_median: tuple[float, ...]
    regret_p90: tuple[float, ...]


def table_worths(table: MeasuredTable, objective: Objective) -> dict[Point, float]:
    """Return the worth of every point of the table."""
    found = {}
    for point in table.space().points:
        worth = objective.worth(table.observation(point, objective.slo))
        found[point] = 0.0 if worth is None else worth
    return found


def good_points(worths: dict[Point, float]) -> frozenset[Point]:
    """Return the points worth at least GOOD_FRAC of the best."""
    best = max(worths.values())
    return frozenset(point for point, worth in worths.items() if worth >= GOOD_FRAC * best)


def is_selective(table: MeasuredTable, objective: Objective, *, share: float = 0.2) -> bool:
    """Tell whether at most this share of the points is good, the default not among them."""
    worths = table_worths(table, objective)
    good = good_points(worths)
    return len(good) <= share * len(worths) and table.space().reference not in good


def replay(
    table: MeasuredTable, objective: Objective, make: Callable[[int], Policy], *, seed: int
) -> Replay:
    """Return one run of the policy that ``make`` builds for a seed."""
    worths = table_worths(table, objective)
    good, best = good_points(worths), max(worths.values())
    policy = make(seed)
    asked: list[Point] = []
    seconds: list[float] = []
    while True:
        answer = policy.ask()
        if isinstance(answer, Stop):
            break
        observation = table.observation(answer.point, objective.slo)
        policy.tell(observation)
        asked.append(answer.point)
        seconds.append(observation.gpu_s)
    hit = next((i for i, point in enumerate(asked) if point in good), None)
    last = len(worths) - 1 if hit is None else hit
    return Replay(
        seed=seed,
        reached=hit is not None,
        points=last,
        gpu_s=sum(seconds[1 : last + 1]),
        regrets=_regrets([worths[p] for p in asked], best, len(worths)),
        asked=tuple(asked),
        stop=answer.code,
    )


def score(policy: str, replays: Sequence[Replay]) -> ReplayScore:
    """Return the summary of replays, which may come from several SLOs or tables."""
    shortest = min(len(r.regrets) for r in replays)
    regrets = np.array([r.regrets[:shortest] for r in replays])
    points = np.array([r.points for r in replays])
    gpu_s = np.array([r.gpu_s for r in replays])
    return ReplayScore(
        policy=policy,
        replays=len(replays),
        reached_frac=float(np.mean([r.reached for r in replays])),
        points_median=float(np.median(points)),
        points_p90=float(np.quantile(points, 0.9)),
        gpu_s_median=float(np.median(gpu_s)),
        gpu_s_p90=float(np.quantile(gpu_s, 0.9)),
        regret_median=tuple(np.median(regrets, axis=0).tolist()),
        regret_p90=tuple(np.quantile(regrets, 0.9, axis=0).tolist()),
    )


def _regrets(worths: Sequence[float], best: float, length: int) -> tuple[float, ...]:
    if best <= 0:
        return (0.0,) * length
    so_far = np.maximum.accumulate(np.array(worths))
    held = np.concatenate([so_far, np.full(max(0, length - so_far.size), so_far[-1])])
    return tuple((1.0 - held / best).tolist())
