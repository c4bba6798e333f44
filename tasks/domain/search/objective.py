"""What a point is worth to a regime, and which of several points is the best.

peak: throughput first (the sustainable rate where it was searched, else goodput at the regime's
rate). off_peak: the SLO, then latency. failover: the SLO, then room left in the KV pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.parameters import Regime
from tasks.domain.search.observation import Observation
from tasks.domain.search.step_model import Floats
from tasks.domain.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The SLO, the regime and the smallest relative gain that counts (0..1).

    by_sustainable_rate: at peak, points are worth their sustainable rate and one without it has
    no score; else goodput at the regime's rate.
    """

    slo: Slo
    regime: Regime = Regime.PEAK
    min_gain_frac: float = 0.03
    by_sustainable_rate: bool = False

    @property
    def searches_rate(self) -> bool:
        """Tell whether points are compared by their sustainable rate."""
        return self.regime is Regime.PEAK and self.by_sustainable_rate

    def worths(
        self, attainment: Floats, *, offered_req_s: float, pressure: Floats, kv_frac: Floats
    ) -> Floats:
        """Return the worth of outcomes given as arrays of one shape.

        peak: attainment x offered rate, req/s. Otherwise attainment / target below the target,
        and from it on 1 + the slack: 1 - pressure (off-peak) or 1 - kv_frac (failover).
        """
        if self.regime is Regime.PEAK:
            return attainment * offered_req_s
        target = self.slo.attainment_frac
        used = pressure if self.regime is Regime.OFF_PEAK else kv_frac
        slack = np.clip(1.0 - used, 0.0, 1.0)
        return np.where(attainment >= target, 1.0 + slack, np.minimum(attainment / target, 1.0))

    def worth(self, observation: Observation) -> float | None:
        """Return the worth of an observed point, None where it has no score."""
        shares = observation.shares
        if not observation.complete or shares is None or observation.offered_req_s is None:
            return None
        if self.searches_rate:
            return observation.sustainable_req_s
        unknown = 1.0  # no slack is claimed for what was not measured
        return float(
            self.worths(
                np.array(shares.attainment_frac),
                offered_req_s=observation.offered_req_s,
                pressure=np.array(_or(observation.pressure, unknown)),
                kv_frac=np.array(_or(observation.kv_peak_frac, unknown)),
            )
        )

    def ceiling(self, observations: Sequence[Observation]) -> float | None:
        """Return the worth that no point can exceed, None where none is known."""
        if self.regime is not Regime.PEAK:
            return 2.0
        if self.searches_rate:
            return None
        return max((o.offered_req_s for o in observations if o.offered_req_s), default=None)

    def best(self, observations: Sequence[Observation]) -> Observation | None:
        """Return the best observed point: within the minimum gain of the top, fewest overrides."""
        scored = [(w, o) for o in observations if (w := self.worth(o)) is not None]
        if not scored:
            return None
        top = max(worth for worth, _ in scored)
        tied = [(w, o) for w, o in scored if w * (1 + self.min_gain_frac) >= top]
        return min(tied, key=lambda pair: (pair[1].point.overrides, -pair[0]))[1]

    def top_worth(self, observations: Sequence[Observation]) -> float:
        """Return the largest worth observed, 0 before anything scored."""
        return max((w for o in observations if (w := self.worth(o)) is not None), default=0.0)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
