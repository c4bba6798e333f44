"""Percentiles that carry their sample count and an interval, or a reason for their absence.

Knows samples of independent values and samples that come in clusters (the token gaps of one
request, the requests of one window). Knows nothing of what is measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from tasks.domain.errors import MeasurementInvalidError

CONFIDENCE = 0.95
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """One sample quantile in seconds with a distribution-free 95 % interval.

    quantile: 0..1. n: samples. n_effective: the independent samples that n is worth; below n only
    where samples come in clusters. value_s is None, with a reason, where the samples do not cover
    the tail: no order statistic of so few samples is an upper bound of the quantile. Then high_s
    is None too, while low_s (a lower bound, where one exists) still holds: ``upper_unbounded``
    means "at least low_s, and nothing says how much more", never "equal to low_s".
    """

    quantile: float
    n: int
    n_effective: int
    value_s: float | None
    low_s: float | None
    high_s: float | None
    reason: str | None = None

    @property
    def upper_unbounded(self) -> bool:
        """Tell whether the samples say nothing about how large the quantile may be."""
        return self.high_s is None

    @property
    def text(self) -> str:
        """Return the percentile as a person reads it, in milliseconds, with its n."""
        name = f"p{100 * self.quantile:g}"
        if self.value_s is None or self.low_s is None or self.high_s is None:
            bound = "" if self.low_s is None else f", at least {1e3 * self.low_s:.1f} ms"
            return f"{name} not known{bound} (n={self.n}: {self.reason})"
        low, high = 1e3 * self.low_s, 1e3 * self.high_s
        return f"{name} {1e3 * self.value_s:.1f} ms (95 % {low:.1f}-{high:.1f} ms, n={self.n})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The percentiles of one latency; every number is None where nothing was measured.

    name: ttft, ttft_from_send, tpot, itl or e2e. n: samples (requests; tokens for itl).
    """

    name: str
    n: int
    mean_s: float | None
    max_s: float | None
    percentiles: tuple[Percentile, ...]

    def p(self, quantile: float) -> Percentile:
        """Return the percentile of a quantile such as 0.99.

        Raises:
            MeasurementInvalidError: for a quantile that was not computed.
        """
        for percentile in self.percentiles:
            if math.isclose(percentile.quantile, quantile):
                return percentile
        known = [percentile.quantile for percentile in self.percentiles]
        raise MeasurementInvalidError(
            f"{self.name} has no percentile {quantile}; needed one of {known}"
        )


def samples_needed(quantile: float) -> int:
    """Return the fewest independent samples that bound the quantile (0.5..1) on both sides.

    The smallest n with quantile^n + (1 - quantile)^n <= 0.05, the chance that the quantile lies
    outside the whole sample: 6 for p50, 29 for p90, 299 for p99.
    """
    n = 1
    while quantile**n + (1 - quantile) ** n > 1 - CONFIDENCE:
        n += 1
    return n


def percentile_of(
    samples: Sequence[float] | NDArray[np.float64],
    quantile: float,
    *,
    clusters: NDArray[np.int64] | None = None,
) -> Percentile:
    """Return a sample quantile in seconds with an order-statistic interval.

    The value interpolates linearly between order statistics (numpy's default, vLLM bench's too).
    The interval's ends are the order statistics X(l), X(u) with P(l <= B <= u - 1) >= 0.95 for
    B ~ Binomial(n, quantile). With clusters (one id a sample) n is first divided by the design
    effect of "sample <= value" over the clusters.

    Raises:
        MeasurementInvalidError: for a sample that is not finite.
    """
    ordered = _sorted_finite(samples)
    n = int(ordered.size)
    if n == 0:
        return _absent(quantile, 0, 0, None, "no sample")
    value = float(np.quantile(ordered, quantile))
    n_effective = n
    if clusters is not None:
        below = np.asarray(samples, dtype=np.float64) <= value
        n_effective = max(1, math.floor(n / design_effect(below, clusters)))
    lower, upper = _interval_ranks(n_effective, quantile)
    low = float(ordered[_rank(lower, n_effective, n)]) if lower >= 1 else None
    if upper > n_effective or low is None:
        worth = "" if n_effective == n else f" (worth {n_effective} independent ones)"
        needed = samples_needed(quantile)
        reason = f"{n} samples{worth} do not cover the tail; {needed} independent ones do"
        return _absent(quantile, n, n_effective, low, reason)
    high = float(ordered[_rank(upper, n_effective, n)])
    return Percentile(
        quantile=quantile,
        n=n,
        n_effective=n_effective,
        value_s=value,
        low_s=min(low, value),
        high_s=max(high, value),
    )


def latency_of(
    name: str,
    samples: Sequence[float] | NDArray[np.float64],
    *,
    clusters: NDArray[np.int64] | None = None,
) -> Latency:
    """Return mean, maximum, p50, p90 and p99 of samples in seconds.

    Raises:
        MeasurementInvalidError: for a sample that is not finite.
    """
    values = np.asarray(samples, dtype=np.float64)
    return Latency(
        name=name,
        n=int(values.size),
        mean_s=float(values.mean()) if values.size else None,
        max_s=float(values.max()) if values.size else None,
        percentiles=tuple(percentile_of(values, q, clusters=clusters) for q in QUANTILES),
    )


def design_effect(hits: NDArray[np.bool_], clusters: NDArray[np.int64]) -> float:
    """Return how many times clustering widens the variance of the share of hits, at least 1.

    clusters: one id (0, 1, ...) a sample; ids without a sample do not matter.
    Linearised ratio estimator (Kish): variance over clusters of (hits - share x size), against
    share (1 - share) / n. One cluster, or a share of 0 or 1, says nothing: 1.
    """
    sizes = np.bincount(clusters).astype(np.float64)
    counts = np.bincount(clusters, weights=hits.astype(np.float64))[sizes > 0]
    sizes = sizes[sizes > 0]
    m, n = sizes.size, float(sizes.sum())
    share = float(counts.sum()) / n
    if m < 2 or share in (0.0, 1.0):
        return 1.0
    residual = counts - share * sizes
    clustered = m / (m - 1) * float((residual**2).sum()) / n**2
    return max(1.0, clustered / (share * (1 - share) / n))


def wilson_interval(
    hits: int, n: int, *, n_effective: float | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the two-sided Wilson score interval (Wilson 1927) of a share (0..1) of n > 0 trials.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n); exactly 0 or 1 where no trial or
    every trial hit. n_effective: the independent trials that n is worth, n itself where None.
    """
    trials = float(n) if n_effective is None else n_effective
    share, z = hits / n, float(norm.ppf(0.5 + confidence / 2))
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if hits == 0 else max(0.0, (centre - half) / scale)
    return low, 1.0 if hits == n else min(1.0, (centre + half) / scale)


def _sorted_finite(samples: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.sort(np.asarray(samples, dtype=np.float64))
    if values.size and not np.isfinite(values).all():
        raise MeasurementInvalidError(
            f"{int((~np.isfinite(values)).sum())} of {values.size} samples are not finite; "
            "needed seconds; leave failed requests out"
        )
    return values


def _interval_ranks(n: int, quantile: float) -> tuple[int, int]:
    """Return 1-based ranks (l, u); l = 0 or u = n + 1 where no order statistic bounds that side.

    Equal tails where both ends exist; else the upper end is the maximum and the lower tail takes
    what the upper one leaves, so that the interval still covers 0.95.
    """
    alpha = 1 - CONFIDENCE
    lower = int(binom.ppf(alpha / 2, n, quantile))
    upper = int(binom.ppf(1 - alpha / 2, n, quantile)) + 1
    above_maximum = quantile**n
    if upper > n and above_maximum <= alpha:
        lower, upper = int(binom.ppf(alpha - above_maximum, n, quantile)), n
    return lower, upper


def _rank(rank: int, n_effective: int, n: int) -> int:
    """Return the 0-based index in n samples of a 1-based rank among n_effective."""
    if n_effective == n:
        return rank - 1
    return min(n - 1, max(0, round((rank - 0.5) / n_effective * n - 0.5)))


def _absent(quantile: float, n: int, worth: int, low: float | None, reason: str) -> Percentile:
    return Percentile(
        quantile=quantile,
        n=n,
        n_effective=worth,
        value_s=None,
        low_s=low,
        high_s=None,
        reason=reason,
    )
