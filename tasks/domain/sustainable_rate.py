"""The sustainable rate: the largest multiple of the traffic's rate that still keeps the SLO.

A pure ask/tell search: the generator yields multiples to measure and is sent what they gave.
Knows no engine; a probe that was not believed can be told as such.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from tasks.domain.divergence import STOPPED_EARLY
from tasks.domain.errors import InvalidParameterError
from tasks.domain.measurement import Measurement

TARGET_ATTAINMENT_FRAC = 0.99
FORECAST_STEP = 1.25  # a forecast is trusted to about this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProbe:
    """A multiple of the traffic's own rate to measure.

    stop_when_diverged: the driver may end the load early once the queue diverges (``grows``):
    such a load cannot keep the SLO, and draining it costs time.
    """

    multiple: float
    stop_when_diverged: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RateResult:
    """What a probe gave: the share of its n requests that kept the SLO, with its interval.

    attainment_frac is None where the measurement must not be believed. diverged: the queue grew,
    so the probe failed whatever its share so far. offered_req_s: the rate of this probe. doubts:
    codes of the flags that forbid believing it.
    """

    multiple: float
    n: int
    attainment_frac: float | None
    low_frac: float | None = None
    high_frac: float | None = None
    diverged: bool = False
    offered_req_s: float | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainableRate:
    """The answer: ``multiple`` is the largest one that passed, None where none did.

    fails_at: the smallest multiple that failed, None where none did. probes: in order of asking.
    """

    multiple: float | None
    fails_at: float | None
    probes: tuple[RateResult, ...]
    reason: str

    @property
    def req_s(self) -> float | None:
        """Return the rate in req/s that was offered at ``multiple``, None where none passed."""
        offered = (p.offered_req_s for p in self.probes if p.multiple == self.multiple)
        return next(offered, None)


def rate_result(measurement: Measurement) -> RateResult:
    """Return a measurement as a probe's result.

    Raises:
        InvalidParameterError: for a load point without a rate.
    """
    multiple = measurement.load_point.rate_scale
    if multiple is None:
        raise InvalidParameterError(
            f"load point {measurement.load_point.name} has no rate_scale; needed an open loop"
        )
    return RateResult(
        multiple=multiple,
        n=measurement.n_requests,
        attainment_frac=None if measurement.invalid else measurement.attainment_frac,
        low_frac=measurement.attainment_low_frac,
        high_frac=measurement.attainment_high_frac,
        diverged=measurement.windows[-1].diverged
        or any(flag.code == STOPPED_EARLY for flag in measurement.flags),
        offered_req_s=measurement.offered_req_s,
        doubts=tuple(flag.code for flag in measurement.flags if flag.invalid),
    )


def rate_table(found: SustainableRate) -> str:
    """Return a Markdown table of the probes in order of asking, each share with interval and n."""
    head = "| multiple | offered req/s | n | inside SLO (95 %) | queue |\n|---|---|---|---|---|"
    return "\n".join([head, *(_probe_row(probe) for probe in found.probes)])


def search_sustainable_rate(
    *,
    start: float = 1.0,
    lowest: float = 0.125,
    highest: float = 8.0,
    resolution_frac: float = 0.05,
    target_frac: float = TARGET_ATTAINMENT_FRAC,
    max_probes: int | None = None,
    known: Sequence[RateResult] = (),
    forecast: float | None = None,
) -> Generator[RateProbe, RateResult, SustainableRate]:
    """Yield probes and return the sustainable rate.

    Doubles (or halves) from ``start`` until one multiple passes and one fails, then halves the
    bracket geometrically until fails_at / multiple <= 1 + resolution_frac. A probe passes when
    attainment >= target and its queue did not diverge. An unbelievable result ends the search,
    and so do ``max_probes`` probes: the bracket is then as wide as it is, and said.
    known: results measured before; they narrow the bracket and are not asked again. forecast: the
    multiple at which the limit is expected: asked first where the bracket holds it, and then left
    in steps of FORECAST_STEP instead of two; one beyond ``lowest`` or ``highest`` says only that
    the limit is far away.

    Raises:
        InvalidParameterError: for bounds that are not 0 < lowest <= start <= highest, or a
            resolution that is not positive.
    """
    if not 0 < lowest <= start <= highest or resolution_frac <= 0:
        raise InvalidParameterError(
            f"lowest={lowest} start={start} highest={highest} resolution_frac={resolution_frac}; "
            "needed 0 < lowest <= start <= highest and a positive resolution"
        )
    bracket = _Bracket(lowest=lowest, highest=highest, ratio=1 + resolution_frac)
    if forecast is not None and lowest < forecast < highest:
        bracket.step = FORECAST_STEP
    for result in known:
        bracket.narrow(result.multiple, passes=_passes(result, target_frac))
    probes = list(known)
    at = bracket.first(start, forecast)
    while at is not None:
        result = yield RateProbe(multiple=at)
        probes.append(result)
        if result.attainment_frac is None and not result.diverged:
            codes = ", ".join(result.doubts) or "no attainment"
            why = f"stopped: x{at:.3g} must not be believed ({codes}, n={result.n})"
            return _answer(bracket, probes, why)
        bracket.narrow(at, passes=_passes(result, target_frac))
        at = bracket.next()
        if at is not None and len(probes) - len(known) == max_probes:
            told = f"; stopped after {max_probes} probes, the bracket could be narrower"
            return _answer(bracket, probes, _reason(bracket, probes, target_frac) + told)
    return _answer(bracket, probes, _reason(bracket, probes, target_frac))


@dataclass(slots=True, kw_only=True)
class _Bracket:
    """The largest multiple that passes and the smallest that fails, None where none did yet."""

    lowest: float
    highest: float
    ratio: float
    step: float = 2.0
    good: float | None = None
    bad: float | None = None

    def narrow(self, multiple: float, *, passes: bool) -> None:
        """Take in one result; a pass above a failure counts as luck and changes nothing."""
        if not passes:
            self.bad = multiple if self.bad is None else min(self.bad, multiple)
            if self.good is not None and self.good >= self.bad:
                self.good = None
        elif self.bad is None or multiple < self.bad:
            self.good = multiple if self.good is None else max(self.good, multiple)

    def first(self, start: float, forecast: float | None) -> float | None:
        """Return the multiple to begin with."""
        if forecast is not None:
            low, high = self.good or self.lowest, self.bad or self.highest
            if low * self.ratio < forecast < high / self.ratio:
                return forecast
        return self.next() if self.good or self.bad else start

    def next(self) -> float | None:
        """Return the multiple that halves what is unknown, None where enough is known."""
        if self.good is None:
            at_floor = self.bad is None or self.bad <= self.lowest
            return None if at_floor else max(self.lowest, (self.bad or self.lowest) / self.step)
        if self.bad is None:
            return None if self.good >= self.highest else min(self.highest, self.step * self.good)
        middle = float((self.good * self.bad) ** 0.5)
        enough = self.bad / self.good <= self.ratio or not self.good < middle < self.bad
        return None if enough else middle


def _probe_row(probe: RateResult) -> str:
    inside = "not believed"
    if probe.attainment_frac is not None:
        inside = f"{probe.attainment_frac:.1%}"
        if probe.low_frac is not None and probe.high_frac is not None:
            inside += f" ({probe.low_frac:.1%} to {probe.high_frac:.1%})"
    offered = "-" if probe.offered_req_s is None else f"{probe.offered_req_s:.2f}"
    queue = "diverges" if probe.diverged else "keeps up"
    return f"| x{probe.multiple:.3g} | {offered} | {probe.n} | {inside} | {queue} |"


def _passes(result: RateResult, target_frac: float) -> bool:
    share = result.attainment_frac
    return not result.diverged and share is not None and share >= target_frac


def _answer(bracket: _Bracket, probes: list[RateResult], reason: str) -> SustainableRate:
    return SustainableRate(
        multiple=bracket.good, fails_at=bracket.bad, probes=tuple(probes), reason=reason
    )


def _reason(bracket: _Bracket, probes: list[RateResult], target_frac: float) -> str:
    by_multiple = {probe.multiple: probe for probe in probes}
    parts = []
    for word, multiple in (("passes", bracket.good), ("fails", bracket.bad)):
        if multiple is None:
            continue
        parts.append(f"x{multiple:.3g} {word} ({_said(by_multiple[multiple], target_frac)})")
    if bracket.good is None:
        parts.append("no multiple that was tried keeps the SLO")
    if bracket.bad is None:
        parts.append("none that was tried fails: the limit of the search, not of the engine")
    return f"target {target_frac:.1%}: " + "; ".join(parts)


def _said(result: RateResult, target_frac: float) -> str:
    queue = ", queue diverges" if result.diverged else ""
    if result.attainment_frac is None:
        return f"no attainment, n={result.n}{queue}"
    text = f"{result.attainment_frac:.2%}, n={result.n}{queue}"
    low, high = result.low_frac, result.high_frac
    if low is not None and high is not None and low < target_frac <= high and not queue:
        text += f", 95 % {low:.2%}-{high:.2%} holds the target: more load would sharpen it"
    return text
