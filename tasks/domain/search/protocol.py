"""The ask/tell protocol of a search, and what travels over it besides observations."""

from dataclasses import dataclass
from typing import Protocol

from tasks.domain.search.observation import Observation
from tasks.domain.search.space import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorUse:
    """Something that was believed before it was measured, and where it comes from.

    source: a catalogue row, the plan, the inflection point, the diagnosis or the method itself.
    """

    source: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the policy expects of the point: the worth's mean, spread and expected improvement."""

    mean: float
    sd: float
    expected_gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The point to measure next, why, and every prior that the choice used."""

    point: Point
    reason: str
    priors: tuple[PriorUse, ...] = ()
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The search is over. code: TRIALS, GPU_TIME, EXHAUSTED, CEILING or NO_GAIN."""

    code: str
    reason: str
    priors: tuple[PriorUse, ...] = ()


class Policy(Protocol):
    """A search. What it asks follows from space, seed and the observations told, in order.

    So a killed search resumes by telling a fresh policy the stored observations again. Asking
    twice without telling gives the same answer.
    """

    def ask(self) -> Proposal | Stop:
        """Return the point to measure next, or why there is none."""
        ...

    def tell(self, observation: Observation) -> None:
        """Take what a point gave; a point may be told once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most trials and GPU minutes that a search may spend; None is no limit."""

    trials: int | None = None
    gpu_minutes: float | None = None


NO_LIMIT = Budget()
