"""A trace in a dozen numbers, for reports and for choosing a window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.prefix_reuse import prefix_reuse_frac
from tasks.domain.trace import Trace
from tasks.domain.windows import rate_windows

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """Token counts of prompts or outputs; percentiles interpolate linearly between requests."""

    mean_tokens: float
    p50_tokens: float
    p90_tokens: float
    p99_tokens: float
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProfile:
    """Numbers of a trace; what cannot be told is None.

    mean_rate_req_s: gaps / duration, None for fewer than two requests or no duration.
    peak_req_per_min: most requests in one full minute from the start, None below one minute.
    gap_cv: standard deviation / mean of the gaps between arrivals; 1 for Poisson traffic.
    prefix_reuse_frac: share of prompt tokens that an unbounded prefix cache would hold.
    """

    requests: int
    duration_s: float
    mean_rate_req_s: float | None
    peak_req_per_min: int | None
    gap_cv: float | None
    prompt: LengthSummary
    output: LengthSummary
    prefix_reuse_frac: float | None
    sessions: int | None


def profile_trace(trace: Trace) -> TraceProfile:
    """Return the profile of a trace."""
    duration = trace.duration_s
    peak = None
    if duration >= MINUTE_S:
        peak = max(window.requests for window in rate_windows(trace, window_s=MINUTE_S))
    return TraceProfile(
        requests=len(trace),
        duration_s=duration,
        mean_rate_req_s=(len(trace) - 1) / duration if duration > 0 else None,
        peak_req_per_min=peak,
        gap_cv=gap_cv(trace.arrival_s),
        prompt=_lengths(trace.prompt_tokens),
        output=_lengths(trace.output_tokens),
        prefix_reuse_frac=prefix_reuse_frac(trace),
        sessions=None if trace.session is None else len(set(trace.session)),
    )


def gap_cv(arrival_s: NDArray[np.float64]) -> float | None:
    """Return standard deviation / mean of the gaps, or None for fewer than two gaps."""
    if arrival_s.size < 3 or arrival_s[-1] <= arrival_s[0]:
        return None
    gaps = np.diff(arrival_s)
    return float(gaps.std() / gaps.mean())


def _lengths(tokens: NDArray[np.int64]) -> LengthSummary:
    p50, p90, p99 = np.percentile(tokens, [50, 90, 99]).tolist()
    return LengthSummary(
        mean_tokens=float(tokens.mean()),
        p50_tokens=p50,
        p90_tokens=p90,
        p99_tokens=p99,
        max_tokens=int(tokens.max()),
    )
