"""The records of one arm's search: its points, why each was asked, and what was found."""

from dataclasses import dataclass

from tasks.domain.parameters import ParameterValues
from tasks.domain.search.protocol import PriorUse
from tasks.domain.search_rates import PointRate
from tasks.domain.steps import Failed, TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedPoint:
    """One point of a search, why it was asked and what it gave; None was not measured.

    key: under which the requests lie. forecast: the worth that was expected.
    """

    values: ParameterValues
    status: TrialStatus
    reason: str
    priors: tuple[PriorUse, ...]
    key: str
    n: int | None = None
    attainment_frac: float | None = None
    worth: float | None = None
    forecast: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """What a search found for an arm.

    found: the arm's values with the best point's knobs where they differ from the defaults; the
    arm's own values where nothing beat them. load_s: seconds of load, a first probe that was too
    short included; probe_s of them a point. rates: the sustainable rates of the defaults and of
    the best point, where the plan asks for them; their load is not in load_s.
    failure: what ended it before anything could be compared.
    """

    arm: str
    policy: str
    probes: tuple[ProbedPoint, ...]
    found: ParameterValues
    improved: bool
    load_s: float
    probe_s: float
    stop_code: str
    stop_reason: str
    priors: tuple[PriorUse, ...] = ()
    rates: tuple[PointRate, ...] = ()
    failure: Failed | None = None

    @property
    def best_worth(self) -> float | None:
        """The largest worth of a point, None where no point has one."""
        return max((p.worth for p in self.probes if p.worth is not None), default=None)
