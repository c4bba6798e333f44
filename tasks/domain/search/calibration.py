"""Fits and simulations of one search, remembered by what they were made from.

A memory only: with or without it every answer is the same. A replay of many SLOs on one table
shares one, for the costs of steps do not depend on the SLO.
"""

from dataclasses import dataclass, field

from tasks.domain.search.observation import Observation
from tasks.domain.search.space import Point
from tasks.domain.search.step_fit import FittedPoint, fit_costs, prior_costs
from tasks.domain.search.step_model import Limits, OfferedLoad, Simulated, StepCosts, simulate

Told = tuple[Point, ...]

# Points that are fitted, from the first told on: more cost more and move the costs little; what
# later points say goes into the forecast's correction.
MOST = 5


@dataclass(slots=True, kw_only=True)
class Calibrations:
    """One load on one engine. kv_tokens: the pool's size by the plan, None where not known."""

    kv_tokens: int | None = None
    costs: dict[Told, StepCosts] = field(default_factory=dict)
    seen: dict[tuple[Told, Point], Simulated] = field(default_factory=dict)

    def fitted(self, observations: tuple[Observation, ...]) -> StepCosts:
        """Return the costs fitted to observations with rows, in the order in which they came.

        The first one sets the prior; the fit starts from the one without the last.
        """
        used = observations[:MOST]
        key = tuple(o.point for o in used)
        if key not in self.costs:
            points = tuple(
                FittedPoint(limits=self.limits(o.point), rows=o.rows)
                for o in used
                if o.rows is not None
            )
            start = self.fitted(used[:-1]) if len(used) > 1 else None
            self.costs[key] = fit_costs(points, prior=prior_costs(points[0].rows), start=start)
        return self.costs[key]

    def simulated(
        self, observations: tuple[Observation, ...], load: OfferedLoad, point: Point
    ) -> Simulated:
        """Return what the load would meet at a point under the costs of the observations."""
        key = (tuple(o.point for o in observations), point)
        if key not in self.seen:
            self.seen[key] = simulate(self.fitted(observations), load, self.limits(point))
        return self.seen[key]

    def limits(self, point: Point) -> Limits:
        """Return the scheduler's limits at a point."""
        return Limits(
            max_num_seqs=point.max_num_seqs,
            max_num_batched_tokens=point.max_num_batched_tokens,
            kv_tokens=self.kv_tokens,
        )
