"""A Gaussian-process search: expected improvement over the open points, nothing about engines."""

from dataclasses import dataclass

import numpy as np

from tasks.domain.search.gaussian_process import GaussianProcess, expected_improvement
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import Forecast, Proposal, Stop
from tasks.domain.search.space import Point
from tasks.domain.search.step_model import Floats


@dataclass(slots=True, kw_only=True)
class GpPolicy:
    """Asks the largest expected improvement; the first two points after the reference at random.

    Points without a score count as the worst score seen, so that the search keeps away from them.
    """

    ledger: Ledger
    seed: int
    random_points: int = 2

    def ask(self) -> Proposal | Stop:
        """Return the next point."""
        ended = self.ledger.stop()
        if ended is not None:
            return ended
        first = self.ledger.first()
        if first is not None:
            return first
        open_points, told = self.ledger.open_points(), self.ledger.observations
        if len(told) <= self.random_points:
            random = np.random.default_rng([self.seed, len(told)])
            drawn = open_points[int(random.integers(len(open_points)))]
            return Proposal(point=drawn, reason=f"one of the first, drawn with seed {self.seed}")
        worths = scores(self.ledger)
        process = GaussianProcess.fit(self._inputs([o.point for o in told]), worths)
        mean, sd = process.predict(self._inputs(open_points))
        gains = expected_improvement(mean, sd, float(worths.max()))
        i = int(np.argmax(gains))
        return Proposal(
            point=open_points[i],
            reason="largest expected improvement",
            forecast=Forecast(mean=float(mean[i]), sd=float(sd[i]), expected_gain=float(gains[i])),
        )

    def tell(self, observation: Observation) -> None:
        """Take what a point gave."""
        self.ledger.tell(observation)

    def _inputs(self, points: tuple[Point, ...] | list[Point]) -> Floats:
        """Return levels of cell and knobs divided by the highest level, shape (n, 3)."""
        space = self.ledger.space
        levels = np.array([space.coordinates(point) for point in points], dtype=np.float64)
        highest = np.array([space.coordinates(p) for p in space.points]).max(axis=0)
        scaled: Floats = levels / np.maximum(highest, 1)
        return scaled


def scores(ledger: Ledger) -> Floats:
    """Return the worth of every observation; one without a score counts as the worst seen."""
    worths = [ledger.objective.worth(o) for o in ledger.observations]
    known = [worth for worth in worths if worth is not None]
    worst = min(known, default=0.0)
    return np.array([worst if worth is None else worth for worth in worths])
