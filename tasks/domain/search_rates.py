"""The sustainable rates of a search's defaults and of its best point, on the search's own engine.

What they cost is load alone, no start: the gain of the knobs as a rate, before anything is
confirmed on a fresh engine.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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


def point_rates(
    session: EngineSession,
    plan: SustainablePlan,
    points: Sequence[Point],
    *,
    traffic: str,
    seen: Mapping[Point, Measurement],
    forecast: Callable[[Point], float | None],
    key_of: Callable[[Point, LoadPoint], str],
) -> Generator[Step, Outcome, tuple[PointRate, ...]]:
    """Yield the probes of each point in turn; a point whose probe fails ends them.

    seen: the points' measurements at the traffic's own rate, which are known results.
    """
    found: list[PointRate] = []
    for point in points:
        measured = seen.get(point)
        known = () if measured is None or measured.invalid else (rate_result(measured),)
        expected = forecast(point)
        rate = yield from sustainable_rate_of(
            session,
            plan,
            traffic=traffic,
            key_of=partial(key_of, point),
            live=point.values,
            known=known,
            forecast=expected,
        )
        told = PointRate(values=point.values, rate=None, forecast=expected)
        if not isinstance(rate, SustainableRate):
            found.append(replace(told, note=failure_in(rate).message))
            break
        probes_s = plan.probe_s * (len(rate.probes) - len(known))
        found.append(replace(told, rate=rate, probes_s=probes_s))
    return tuple(found)
