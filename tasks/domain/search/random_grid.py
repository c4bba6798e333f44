"""The two controls: points in random order, and points in the order of the grid."""

from dataclasses import dataclass

import numpy as np

from tasks.domain.search.ledger import Ledger
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import Proposal, Stop


@dataclass(slots=True, kw_only=True)
class RandomPolicy:
    """Asks the open points in an order drawn once from the seed."""

    ledger: Ledger
    seed: int

    def ask(self) -> Proposal | Stop:
        """Return the next point of the seed's order."""
        ended = self.ledger.stop()
        if ended is not None:
            return ended
        open_points = set(self.ledger.open_points())
        points = self.ledger.space.points
        order = np.random.default_rng(self.seed).permutation(len(points))
        drawn = next(points[i] for i in order if points[i] in open_points)
        reason = f"drawn at random with seed {self.seed}"
        return self.ledger.first() or Proposal(point=drawn, reason=reason)

    def tell(self, observation: Observation) -> None:
        """Take what a point gave."""
        self.ledger.tell(observation)


@dataclass(slots=True, kw_only=True)
class GridPolicy:
    """Asks the open points in the order of the space."""

    ledger: Ledger

    def ask(self) -> Proposal | Stop:
        """Return the first open point."""
        ended = self.ledger.stop()
        if ended is not None:
            return ended
        following = self.ledger.open_points()[0]
        reason = "the next point of the grid"
        return self.ledger.first() or Proposal(point=following, reason=reason)

    def tell(self, observation: Observation) -> None:
        """Take what a point gave."""
        self.ledger.tell(observation)
