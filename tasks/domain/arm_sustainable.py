"""The sustainable rate of a deployed arm: each probe a Measure step that may end early."""

from collections.abc import Callable, Generator, Sequence

from tasks.domain.engine_session import EngineSession
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.parameters import ParameterValues
from tasks.domain.steps import Measure, Measured, Outcome, Step
from tasks.domain.study_request import SustainablePlan
from tasks.domain.sustainable_rate import (
    RateResult,
    SustainableRate,
    rate_result,
    search_sustainable_rate,
)


def sustainable_rate_of(
    session: EngineSession,
    plan: SustainablePlan,
    *,
    traffic: str,
    key_of: Callable[[LoadPoint], str],
    live: ParameterValues | None = None,
    known: Sequence[RateResult] = (),
    forecast: float | None = None,
) -> Generator[Step, Outcome, SustainableRate | Outcome]:
    """Yield the probes and return the rate, or the outcome of a probe that gave no measurement.

    A probe's key is not that of an ordinary measurement of the same load: it may be cut short.
    live: values that the running engine is moved to before each probe. known, forecast: what the
    search may start from, see ``search_sustainable_rate``.
    """
    search = search_sustainable_rate(
        highest=plan.highest,
        resolution_frac=plan.resolution_frac,
        max_probes=plan.max_probes,
        known=known,
        forecast=forecast,
    )
    try:
        probe = next(search)
    except StopIteration as enough:
        from_known: SustainableRate = enough.value
        return from_known
    while True:
        point = LoadPoint(kind=LoadKind.OPEN, rate_scale=probe.multiple, duration_s=plan.probe_s)
        outcome = yield from session.measurement_of(
            Measure(
                key=key_of(point),
                arm=session.arm,
                point=point,
                traffic=traffic,
                live=live,
                stop_when_diverged=probe.stop_when_diverged,
            )
        )
        if not isinstance(outcome, Measured):
            return outcome
        try:
            probe = search.send(rate_result(outcome.measurement))
        except StopIteration as found:
            rate: SustainableRate = found.value
            return rate
