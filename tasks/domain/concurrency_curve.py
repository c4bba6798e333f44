"""The concurrency-latency curve of one engine, out of closed-loop measurements.

The latency is TTFT: in a closed loop E2E only grows with concurrency, while TTFT spikes where
requests begin to queue. All points of one curve use one quantile, the highest that every point's
samples cover: a curve of p90 beside p99 points would bend where the quantile changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.inflection import CurvePoint, Inflection, inflection_point, next_concurrency
from tasks.domain.measurement import Measurement
from tasks.domain.percentiles import QUANTILES


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyCurve:
    """The points by concurrency, the quantile they show, and the inflection point."""

    quantile: float
    points: tuple[CurvePoint, ...]
    inflection: Inflection


def covered_quantile(measured: Sequence[Measurement]) -> float:
    """Return the highest quantile (0..1) that every measurement's TTFT samples cover.

    Where not even the lowest is covered everywhere, the lowest is returned: its points are None.
    """
    for quantile in sorted(QUANTILES, reverse=True):
        if all(m.ttft.p(quantile).value_s is not None for m in measured):
            return quantile
    return min(QUANTILES)


def curve_points(measured: Sequence[Measurement]) -> ConcurrencyCurve:
    """Return the curve of at least one closed-loop measurement."""
    quantile = covered_quantile(measured)
    points = tuple(
        sorted((_point(m, quantile) for m in measured), key=lambda point: point.concurrency)
    )
    known = [point for point in points if point.p99_s is not None]
    return ConcurrencyCurve(quantile=quantile, points=points, inflection=inflection_point(known))


def next_curve_concurrency(measured: Sequence[Measurement], *, limit: int) -> int | None:
    """Return the next concurrency to measure; None when the knee is found or out of reach."""
    quantile = covered_quantile(measured) if measured else max(QUANTILES)
    return next_concurrency([_point(m, quantile) for m in measured], limit=limit)


def _point(measurement: Measurement, quantile: float) -> CurvePoint:
    percentile = measurement.ttft.p(quantile)
    return CurvePoint(
        concurrency=measurement.load_point.concurrency or 0,
        p99_s=percentile.value_s,
        low_s=percentile.low_s,
        high_s=percentile.high_s,
        n=measurement.n_ok,
    )
