"""Fits and simulations of one search, remembered by what they were made from.

A memory only: with or without it every answer is the same. A replay of many SLOs on one table
shares one, for the costs of steps do not depend on the SLO.
"""

from dataclasses import dataclass, field

import numpy as np

from tasks.domain.search.observation import Observation
from tasks.domain.search.space import Point
from tasks.domain.search.step_fit import Fit, FittedPoint, fit_costs, prior_costs
from tasks.domain.search.step_model import Limits, OfferedLoad, Simulated, StepCosts, simulate

# Points that are fitted, from the first told on: more cost more and move the costs little; what
# later points say goes into the forecast's correction.
MOST = 5
DRAWN_MEMBERS = 4  # draws of the costs beside the best ones
Told = tuple[Point, ...]


@dataclass(slots=True, kw_only=True)
class Calibrations:
    """One load on one engine. kv_tokens: the pool's size by the plan, None where not known."""

    kv_tokens: int | None = None
    fits: dict[Told, Fit] = field(default_factory=dict)
    seen: dict[tuple[Told, Point], tuple[Simulated, ...]] = field(default_factory=dict)

    def fit(self, observations: tuple[Observation, ...]) -> Fit:
        """Return the fit to observations with rows, in the order in which they came.

        The first one sets the prior; the fit starts from the one without the last.
        """
        used = observations[:MOST]
        key = tuple(o.point for o in used)
        if key not in self.fits:
            points = tuple(
                FittedPoint(limits=self.limits(o.point), rows=o.rows)
                for o in used
                if o.rows is not None
            )
            start = self.fit(used[:-1]).vector if len(used) > 1 else None
            self.fits[key] = fit_costs(points, prior=prior_costs(points[0].rows), start=start)
        return self.fits[key]

    def members(self, observations: tuple[Observation, ...]) -> tuple[StepCosts, ...]:
        """Return the best costs and draws of what else the observations allow."""
        fit = self.fit(observations)
        normals = np.random.default_rng(0).standard_normal((DRAWN_MEMBERS, fit.vector.size))
        return fit.members(normals)

    def simulated(
        self, observations: tuple[Observation, ...], load: OfferedLoad, point: Point
    ) -> tuple[Simulated, ...]:
        """Return what the load would meet at a point under each member's costs."""
        told = tuple(o.point for o in observations[:MOST])
        if (told, point) not in self.seen:
            costs = self.members(observations)
            wider = self._wider(told, point)
            self.seen[told, point] = tuple(
                wider[i]
                if wider is not None and wider[i].peak_running <= point.max_num_seqs
                else simulate(member, load, self.limits(point))
                for i, member in enumerate(costs)
            )
        return self.seen[told, point]

    def _wider(self, told: Told, point: Point) -> tuple[Simulated, ...] | None:
        """Return a remembered simulation with the same budget and a higher cap, if there is one.

        Where that never ran more sequences than this point allows, it is this point's too.
        """
        return next(
            (
                seen
                for (key, other), seen in self.seen.items()
                if key == told
                and other.max_num_batched_tokens == point.max_num_batched_tokens
                and other.max_num_seqs > point.max_num_seqs
            ),
            None,
        )

    def limits(self, point: Point) -> Limits:
        """Return the scheduler's limits at a point."""
        return Limits(
            max_num_seqs=point.max_num_seqs,
            max_num_batched_tokens=point.max_num_batched_tokens,
            kv_tokens=self.kv_tokens,
        )
