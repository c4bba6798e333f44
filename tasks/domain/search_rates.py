"""The sustainable rate of a search's defaults or of its best point, on the search's own engine.

What it costs is load alone, no start: the gain of the knobs as a rate, before anything is
confirmed on a fresh engine.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from tasks.domain.arm_sustainable import sustainable_rate_of
from tasks.domain.engine_session import EngineSession
from tasks.domain.load_point import LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.space import Point
from tasks.domain.steps import Outcome, Step, failure_in
from tasks.domain.study_request import SustainablePlan
from tasks.domain.sustainable_rate import SustainableRate, rate_result


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRate:
    """A point's sustainable rate, found live; None with a note where it was not found.

    forecast: the multiple of the traffic's rate that was expected, None where nothing was.
    probes_s: seconds of load of each new probe at most, the points' own measurements apart.
    """

    values: ParameterValues
    rate: SustainableRate | None
    forecast: float | None = None
    probes_s: float = 0.0
    note: str = ""


def point_rate(
    session: EngineSession,
    plan: SustainablePlan,
    point: Point,
    *,
    traffic: str,
    measured: Measurement | None,
    forecast: float | None,
    key_of: Callable[[LoadPoint], str],
) -> Generator[Step, Outcome, PointRate]:
    """Yield the probes of a point and return its rate.

    measured: the point's measurement at the traffic's own rate, which is a known result.
    """
    known = () if measured is None or measured.invalid else (rate_result(measured),)
    rate = yield from sustainable_rate_of(
        session,
        plan,
        traffic=traffic,
        key_of=key_of,
        live=point.values,
        known=known,
        forecast=forecast,
    )
    told = PointRate(values=point.values, rate=None, forecast=forecast)
    if not isinstance(rate, SustainableRate):
        return replace(told, note=failure_in(rate).message)
    probes_s = plan.probe_s * (len(rate.probes) - len(known))
    return replace(told, rate=rate, probes_s=probes_s)
