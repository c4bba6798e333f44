"""Does the SLO hold on what was measured: shown, broken, or not enough requests to tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.stats import beta

from tasks.domain.measurement import Measurement
from tasks.domain.slo import Slo

CONFIDENCE = 0.95


class Holding(StrEnum):
    """The three answers; UNPROVEN means that more requests would decide."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class SloHolding:
    """The answer with its figures.

    attainment_frac = n_good / n over all requests, failed ones included; low_frac and high_frac
    are one-sided Clopper-Pearson bounds at 95 % each (requests taken as independent; bursts make
    the true interval wider). requests_that_would_decide: how many requests without a violation
    would show the target; None unless UNPROVEN.
    """

    holding: Holding
    n: int
    n_good: int
    attainment_frac: float | None
    low_frac: float | None
    high_frac: float | None
    requests_that_would_decide: int | None
    sentence: str


def slo_holding(measurements: Sequence[Measurement], slo: Slo) -> SloHolding:
    """Pool the measurements of one load and hold them against the SLO's attainment.

    HOLDS: the lower bound reaches the target. BROKEN: the upper bound stays under it. A target of
    1.0 can be broken but never shown by a sample. Needed without any violation:
    ln(0.05) / ln(target) requests.
    """
    n = sum(m.n_requests for m in measurements)
    good = sum(m.n_good for m in measurements)
    target = slo.attainment_frac
    if n == 0:
        return SloHolding(
            holding=Holding.UNPROVEN, n=0, n_good=0, attainment_frac=None, low_frac=None,
            high_frac=None, requests_that_would_decide=_needed(target),
            sentence="no request was measured",
        )  # fmt: skip
    low = float(beta.ppf(1 - CONFIDENCE, good, n - good + 1)) if good else 0.0
    high = float(beta.ppf(CONFIDENCE, good + 1, n - good)) if good < n else 1.0
    figures = (
        f"{good} of {n} requests kept the SLO ({good / n:.1%}, one-sided 95 % bounds "
        f"{low:.1%} and {high:.1%}; target {target:.1%})"
    )
    needed = None
    if low >= target:
        holding = Holding.HOLDS
    elif high < target:
        holding = Holding.BROKEN
    else:
        holding, needed = Holding.UNPROVEN, _needed(target)
        wanted = "no sample" if needed is None else f"{needed} requests without a violation"
        figures += f"; {wanted} would show it"
    return SloHolding(
        holding=holding, n=n, n_good=good, attainment_frac=good / n, low_frac=low,
        high_frac=high, requests_that_would_decide=needed, sentence=figures,
    )  # fmt: skip


def broken_despite_lateness(measurement: Measurement, slo: Slo) -> str | None:
    """Return why the SLO is broken however late the client was, None where that is not shown.

    A client that is late by x makes TTFT and E2E at most x longer. Where their median less x is
    over the limit, at least half of the successes broke it, whoever was late.
    """
    client = measurement.client
    known = [v for v in (client.send_lag_p99_s, client.receive_error_p99_s) if v is not None]
    late_s = sum(known)
    for name, latency, limit_s in (
        ("TTFT", measurement.ttft, slo.ttft_s),
        ("E2E", measurement.e2e, slo.e2e_s),
    ):
        median_s = latency.p(0.5).value_s
        if limit_s is None or median_s is None or median_s - late_s <= limit_s:
            continue
        n, good = measurement.n_requests, measurement.n_ok // 2
        high = float(beta.ppf(CONFIDENCE, good + 1, n - good)) if good < n else 1.0
        if high < slo.attainment_frac:
            return (
                f"{name} p50 {median_s:.3f} s of n={latency.n}, less the {late_s:.3f} s that the "
                f"client was late, is over the limit of {limit_s:g} s: at most {good} of {n} kept "
                f"it (one-sided 95 % bound {high:.1%}; target {slo.attainment_frac:.1%})"
            )
    return None


def _needed(target: float) -> int | None:
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(target)) if target < 1 else None
