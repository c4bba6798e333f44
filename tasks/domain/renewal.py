"""Arrivals of a renewal process whose rate changes in steps: Gamma or Weibull gaps.

Gaps are drawn with mean 1 in operational time (expected requests so far) and mapped back to
seconds, so the rate is exact and bursts may cross a step. The process starts in its stationary
state: its first gap is the rest of a gap that was already running (length-biased).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import TraceError

DRAWN_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Constant rate between two times; ``family`` is "gamma" or "weibull", ``shape`` its k.

    The coefficient of variation of Gamma gaps is 1 / sqrt(shape); shape 1 is Poisson in both.
    """

    start_s: float
    end_s: float
    rate_req_s: float
    family: str
    shape: float


def renewal_arrivals(
    segments: tuple[Segment, ...], *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return sorted arrival times in seconds over all segments.

    Raises:
        TraceError: if a segment's family is unknown or a number is not positive.
    """
    parts: list[NDArray[np.float64]] = []
    ahead: float | None = None  # operational time until the next arrival
    for segment in segments:
        _check(segment)
        if ahead is None:
            ahead = _first_gap(segment, rng)
        expected = segment.rate_req_s * (segment.end_s - segment.start_s)
        points: list[NDArray[np.float64]] = []
        while ahead < expected:
            gaps = _gaps(segment, DRAWN_AT_ONCE, rng)
            times = ahead + np.concatenate([[0.0], np.cumsum(gaps)])
            inside = times < expected
            points.append(times[inside])
            # All inside: the last one is not yet sent, it opens the next draw.
            if inside.all():
                points[-1] = times[:-1]
                ahead = float(times[-1])
            else:
                ahead = float(times[np.argmin(inside)])
        ahead -= expected
        if points:
            parts.append(segment.start_s + np.concatenate(points) / segment.rate_req_s)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float64)


def _check(segment: Segment) -> None:
    positive = segment.rate_req_s > 0 and segment.shape > 0 and segment.end_s > segment.start_s
    if segment.family not in ("gamma", "weibull") or not positive:
        raise TraceError(
            f"arrival segment {segment} cannot be drawn; needed family gamma or weibull, "
            f"end_s after start_s, rate_req_s and shape above 0; correct the traffic description"
        )


def _gaps(segment: Segment, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    shape = segment.shape
    if segment.family == "gamma":
        return rng.gamma(shape, 1.0 / shape, size=count)
    return rng.weibull(shape, size=count) / math.gamma(1.0 + 1.0 / shape)


def _first_gap(segment: Segment, rng: np.random.Generator) -> float:
    """Return the rest of a running gap: a uniform share of a length-biased gap."""
    shape = segment.shape
    if segment.family == "gamma":
        running = rng.gamma(shape + 1.0, 1.0 / shape)
    else:
        running = rng.gamma(1.0 + 1.0 / shape) ** (1.0 / shape) / math.gamma(1.0 + 1.0 / shape)
    return float(rng.random() * running)
