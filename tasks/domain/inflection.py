"""The inflection point of a concurrency-latency curve, and which concurrency to measure next.

The guide's rule: find where p99 suddenly spikes and choose the concurrency just before it.
Knows numbers only; whether a latency is good enough is the SLO's business.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from tasks.domain.errors import InvalidParameterError

# A queue makes latency grow as fast as concurrency at most (closed loop: E2E = concurrency /
# throughput). Half as much again within one step or one doubling is what we call a spike; it
# also leaves room for 20 % of noise on every point.
SPIKE_FACTOR = 1.5
OCTAVE = 2.0
BRACKET_RATIO = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Latency at a concurrency, in seconds; p99_s is None where the sample did not cover it.

    low_s, high_s: 95 % interval, None where unknown. n: samples behind the percentile.
    """

    concurrency: int
    p99_s: float | None
    low_s: float | None
    high_s: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inflection:
    """Where latency spikes: the first bad concurrency and the last good one before it.

    knee: first concurrency of the spike, None where none was seen. choose: the largest measured
    concurrency before it. The spike begins in (low, high]; high is None where none was seen.
    """

    knee: int | None
    choose: int | None
    low: int | None
    high: int | None
    reason: str


def inflection_point(points: Sequence[CurvePoint]) -> Inflection:
    """Return the knee of a curve in any order; points of one concurrency are merged.

    Point k is a knee over an earlier point j (the one before, or any within a factor of two) when
    p99(k)/p99(j) > 1.5 x concurrency(k)/concurrency(j), their intervals do not overlap, and every
    later point stays above 1.5 x p99(j). The first such k counts, with the j of the steepest rise.

    Raises:
        InvalidParameterError: for a concurrency below 1 or a latency that is not positive.
    """
    curve = _merged(points)
    if len(curve) < 2:
        return _no_knee(curve, points, "two concurrencies with a covered p99 are needed")
    unclear = ""
    for k in range(1, len(curve)):
        base = _steepest_base(curve, k)
        if base is None:
            continue
        before, knee = curve[base], curve[k]
        if _overlap(before, knee):
            unclear = f"; {_said(knee)} cannot be told from {_said(before)}: their intervals meet"
            continue
        return Inflection(
            knee=knee.concurrency,
            choose=before.concurrency,
            low=before.concurrency,
            high=knee.concurrency,
            reason=_knee_reason(before, knee, last=k == len(curve) - 1),
        )
    return _no_knee(curve, points, f"no knee found up to {curve[-1].concurrency}{unclear}")


def next_concurrency(points: Sequence[CurvePoint], *, limit: int) -> int | None:
    """Return the concurrency to measure next, None when the curve is known well enough.

    Doubles from 1 until a knee is seen or ``limit`` is reached, then halves (geometrically) the
    widest gap between the chosen point and the knee until no two neighbours there are further
    apart than a ratio of 1.25.
    """
    seen = sorted({p.concurrency for p in points})
    if not seen:
        return min(1, limit) or None
    found = inflection_point(points)
    if found.knee is None or found.choose is None:
        return None if seen[-1] >= limit else min(2 * seen[-1], limit)
    inside = [c for c in seen if found.choose <= c <= found.knee]
    low, high = max(pairwise(inside), key=lambda gap: gap[1] / gap[0])
    middle = round(math.sqrt(low * high))
    if high / low <= BRACKET_RATIO or middle in (low, high):
        return None
    return middle


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    concurrency: int
    p99_s: float
    low_s: float
    high_s: float
    n: int


def _merged(points: Sequence[CurvePoint]) -> list[_Point]:
    """Return covered points by concurrency; repeats become their n-weighted mean."""
    covered: list[_Point] = []
    for p in points:
        if p.concurrency < 1 or (p.p99_s is not None and not 0 < p.p99_s < math.inf):
            raise InvalidParameterError(
                f"curve point concurrency={p.concurrency} p99_s={p.p99_s}; needed a concurrency "
                "of at least 1 and a positive, finite latency; leave failed points out"
            )
        if p.p99_s is not None:
            low = p.p99_s if p.low_s is None else p.low_s
            high = p.p99_s if p.high_s is None else p.high_s
            covered.append(
                _Point(concurrency=p.concurrency, p99_s=p.p99_s, low_s=low, high_s=high, n=p.n)
            )
    covered.sort(key=lambda p: p.concurrency)
    groups = groupby(covered, key=lambda p: p.concurrency)
    return [_mean(concurrency, list(group)) for concurrency, group in groups]


def _mean(concurrency: int, group: list[_Point]) -> _Point:
    if len(group) == 1:
        return group[0]
    weights = [max(p.n, 1) for p in group]
    total = sum(weights)
    mean = math.fsum(w * p.p99_s for w, p in zip(weights, group, strict=True)) / total
    return _Point(
        concurrency=concurrency,
        p99_s=mean,
        low_s=min(p.low_s for p in group),
        high_s=max(p.high_s for p in group),
        n=sum(p.n for p in group),
    )


def _steepest_base(curve: list[_Point], k: int) -> int | None:
    """Return the earlier point over which point k spikes most, None where it does not."""

    def rise(j: int) -> float:
        ratio = curve[k].concurrency / curve[j].concurrency
        return curve[k].p99_s / curve[j].p99_s / ratio

    near = [
        j for j in range(k) if j == k - 1 or curve[k].concurrency <= OCTAVE * curve[j].concurrency
    ]
    spikes = [
        j
        for j in near
        if rise(j) > SPIKE_FACTOR
        and all(later.p99_s > SPIKE_FACTOR * curve[j].p99_s for later in curve[k:])
    ]
    return max(spikes, key=rise) if spikes else None


def _overlap(before: _Point, knee: _Point) -> bool:
    return knee.low_s <= before.high_s


def _said(p: _Point) -> str:
    return f"{1e3 * p.p99_s:.0f} ms at {p.concurrency} (n={p.n})"


def _knee_reason(before: _Point, knee: _Point, *, last: bool) -> str:
    alone = "; no later point confirms it" if last else ""
    return (
        f"p99 rises from {_said(before)} to {_said(knee)}: {knee.p99_s / before.p99_s:.1f} times "
        f"for {knee.concurrency / before.concurrency:.2g} times the concurrency{alone}"
    )


def _no_knee(curve: list[_Point], points: Sequence[CurvePoint], why: str) -> Inflection:
    dropped = sorted({p.concurrency for p in points if p.p99_s is None})
    note = f"; p99 not covered at {dropped}" if dropped else ""
    last = curve[-1].concurrency if curve else None
    return Inflection(knee=None, choose=last, low=last, high=None, reason=why + note)
