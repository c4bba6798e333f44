"""Statistics of two shares that were counted on the same items.

Knows counts only: how many items, how many that only one side got right.
"""

import math

from scipy.optimize import brentq
from scipy.stats import binom, norm

MOST_ITEMS = 10_000_000


def drop_bounds(
    n: int, reference_only: int, candidate_only: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the one-sided lower and upper bound of the drop, each at ``confidence``.

    The score interval for a paired difference of shares (Tango 1998), which keeps its level for
    few discordant pairs. With none at all, the exact binomial bound 1 - (1 - confidence)^(1/n)
    on either side: 3.0 points for 100 items, 1.0 for 300.
    """
    if reference_only == candidate_only == 0:
        bound = float(1.0 - (1.0 - confidence) ** (1.0 / n))
        return -bound, bound
    z = float(norm.ppf(confidence))
    drop = (reference_only - candidate_only) / n

    def excess(delta: float) -> float:
        return _tango_score(delta, n, reference_only, candidate_only)

    edge = 1.0 - 1e-9
    low = brentq(lambda d: excess(d) - z, -edge, drop) if excess(-edge) > z else -1.0
    high = brentq(lambda d: excess(d) + z, drop, edge) if excess(edge) < -z else 1.0
    return float(low), float(high)


def mcnemar_exact_p(reference_only: int, candidate_only: int) -> float:
    """Return the two-sided exact McNemar p-value: a fair coin over the discordant pairs."""
    discordant = reference_only + candidate_only
    if discordant == 0:
        return 1.0
    return min(1.0, 2.0 * float(binom.cdf(min(reference_only, candidate_only), discordant, 0.5)))


def items_that_would_decide(
    n: int,
    reference_only: int,
    candidate_only: int,
    *,
    margin_frac: float = 0.01,
    confidence: float = 0.95,
) -> int | None:
    """Return how many items would put the margin outside the bounds, if the rates stay as seen.

    N = z^2 (q - d^2) / (margin - d)^2 with q = discordant share and d = drop; without any
    discordance N = ln(1 - confidence) / ln(1 - margin), 299 for one point at 95 %. None if the
    drop sits on the margin, where no realistic number decides.
    """
    if reference_only == candidate_only == 0:
        return max(n + 1, math.ceil(math.log(1.0 - confidence) / math.log(1.0 - margin_frac)))
    z = float(norm.ppf(confidence))
    discordance, drop = (reference_only + candidate_only) / n, (reference_only - candidate_only) / n
    gap = margin_frac - drop
    if abs(gap) < z * math.sqrt(discordance / MOST_ITEMS):
        return None
    return max(n + 1, math.ceil(z * z * (discordance - drop * drop) / (gap * gap)))


def differ_beyond_noise(
    acc_a: float, error_a: float, acc_b: float, error_b: float, *, confidence: float = 0.95
) -> bool:
    """Whether two unpaired accuracies with their standard errors differ (two-sided z test).

    For published numbers without items only; items of our own are always compared in pairs.
    """
    z = float(norm.ppf(0.5 + confidence / 2.0))
    return abs(acc_a - acc_b) > z * math.hypot(error_a, error_b)


def _tango_score(delta: float, n: int, b: int, c: int) -> float:
    """Return the score statistic of drop = delta; it falls as delta grows.

    The restricted estimate of the candidate-only share p solves 2n p^2 + B p + C = 0 with
    B = -b - c + (2n - b + c) delta and C = -c delta (1 - delta).
    """
    linear = -b - c + (2 * n - b + c) * delta
    constant = -c * delta * (1.0 - delta)
    root = math.sqrt(max(0.0, linear * linear - 8.0 * n * constant))
    share = (root - linear) / (4.0 * n)
    variance = n * (2.0 * share + delta * (1.0 - delta))
    difference = b - c - n * delta
    if variance <= 0.0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference / math.sqrt(variance)
