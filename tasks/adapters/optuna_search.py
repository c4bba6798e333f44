"""Optuna's TPE and GP samplers behind the search protocol; the only importer of optuna.

The sampler is made anew for every ask and told the whole history, so the answer follows from
seed and observations alone and a killed search resumes. Knob levels are integers 0..k-1.
"""

import importlib.util
import warnings
from dataclasses import dataclass

import optuna
from optuna.distributions import IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import TrialState, create_trial

from tasks.domain.search.ledger import Ledger
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import Proposal, Stop
from tasks.domain.search.space import SEQS, TOKENS, Point

# Optuna's own ten random points would be half of a small table: a fair trial starts earlier.
STARTUP_POINTS = 3
_AXES = ("cell", SEQS, TOKENS)


def has_gp_sampler() -> bool:
    """Tell whether Optuna's GPSampler can run here: it needs torch, which is no dependency."""
    return importlib.util.find_spec("torch") is not None


@dataclass(slots=True, kw_only=True)
class OptunaPolicy:
    """Asks what the sampler suggests, or the nearest open point where that was told already.

    sampler: ``tpe`` or ``gp``.
    """

    ledger: Ledger
    seed: int
    sampler: str = "tpe"

    def ask(self) -> Proposal | Stop:
        """Return the next point."""
        ended = self.ledger.stop()
        if ended is not None:
            return ended
        first = self.ledger.first()
        if first is not None:
            return first
        wanted = self._suggestion()
        coordinates = self.ledger.space.coordinates
        point = min(
            self.ledger.open_points(),
            key=lambda p: sum(abs(a - b) for a, b in zip(coordinates(p), wanted, strict=True)),
        )
        moved = "" if coordinates(point) == wanted else ", moved to the nearest open point"
        return Proposal(point=point, reason=f"Optuna {self.sampler} with seed {self.seed}{moved}")

    def tell(self, observation: Observation) -> None:
        """Take what a point gave."""
        self.ledger.tell(observation)

    def _suggestion(self) -> tuple[int, int, int]:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=self._made())
        distributions = self._distributions()
        for observation in self.ledger.observations:
            worth = self.ledger.objective.worth(observation)
            study.add_trial(
                create_trial(
                    params=dict(zip(_AXES, self._levels(observation.point), strict=True)),
                    distributions=dict(distributions),
                    value=worth,
                    state=TrialState.FAIL if worth is None else TrialState.COMPLETE,
                )
            )
        params = study.ask(dict(distributions)).params
        return int(params["cell"]), int(params[SEQS]), int(params[TOKENS])

    def _levels(self, point: Point) -> tuple[int, int, int]:
        return self.ledger.space.coordinates(point)

    def _distributions(self) -> dict[str, IntDistribution]:
        space = self.ledger.space
        sizes = (len(space.cells), len(space.levels(SEQS)), len(space.levels(TOKENS)))
        return {axis: IntDistribution(0, n - 1) for axis, n in zip(_AXES, sizes, strict=True)}

    def _made(self) -> BaseSampler:
        seed = self.seed * 1_000 + len(self.ledger.observations)
        if self.sampler == "tpe":
            return TPESampler(seed=seed, n_startup_trials=STARTUP_POINTS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=STARTUP_POINTS, deterministic_objective=True
            )
