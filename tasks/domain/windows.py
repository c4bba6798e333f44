"""Windows of a trace: where it is busy, where it is quiet, one engine's share of it.

A window is half open: a request at its end belongs to the next one.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace
from tasks.domain.trace_selection import select_rows, with_warning

IDLE_FRAC = 0.1  # below this share of the trace's p95 window rate a window is idle, not a regime
PROBE_WINDOW_S = 180.0
FEWEST_PROBES = 8
PEAK_RULE = "most requests among all windows of this length that start at a request; first of ties"
OFF_PEAK_RULE = (
    "fewest requests among windows of this length starting every sixtieth of it, leaving out idle "
    "ones (under 10 % of the trace's p95 rate); first of ties"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a trace in seconds from its start, and the rule that chose it."""

    start_s: float
    end_s: float
    requests: int
    rule: str

    @property
    def rate_req_s(self) -> float:
        """Requests per second inside the window."""
        return self.requests / (self.end_s - self.start_s)


def rate_windows(trace: Trace, *, window_s: float) -> tuple[Window, ...]:
    """Return consecutive windows of ``window_s`` from the first request on.

    A last part that is shorter is left out, except where it is all there is.
    """
    _positive(window_s, "window_s")
    count = max(1, int(trace.duration_s // window_s))
    edges = np.arange(count + 1) * window_s
    requests = np.diff(np.searchsorted(trace.arrival_s, edges, side="left"))
    return tuple(
        Window(
            start_s=float(edges[i]),
            end_s=float(edges[i + 1]),
            requests=int(requests[i]),
            rule=f"window {i} of {count} of {window_s:g} s",
        )
        for i in range(count)
    )


def peak_window(trace: Trace, *, length_s: float) -> Window:
    """Return the busiest contiguous window of ``length_s`` (rule: PEAK_RULE).

    Raises:
        TraceError: if the trace is shorter than the window.
    """
    _fits(trace, length_s)
    starts = trace.arrival_s[trace.arrival_s <= trace.duration_s - length_s]
    return _pick(trace, starts, length_s, PEAK_RULE, busiest=True)


def off_peak_window(trace: Trace, *, length_s: float) -> Window:
    """Return the quietest contiguous window of ``length_s`` that is not idle (OFF_PEAK_RULE).

    Raises:
        TraceError: if the trace is shorter than the window, or idle wherever it is cut.
    """
    _fits(trace, length_s)
    starts = np.arange(0.0, trace.duration_s - length_s + 1e-9, length_s / 60.0)
    counts = _counts(trace, starts, length_s)
    starts = starts[counts >= IDLE_FRAC * p95_rate_req_s(trace) * length_s]
    if starts.size == 0:
        raise TraceError(
            f"{trace.source} has no window of length_s={length_s:g} that is not idle; needed one "
            f"at 10 % of the p95 rate or more; choose a longer length_s or compress the gaps"
        )
    return _pick(trace, starts, length_s, OFF_PEAK_RULE, busiest=False)


def p95_rate_req_s(trace: Trace) -> float:
    """Return the 95th percentile (rounded up to a real window) of the rates of 180 s windows.

    A trace shorter than eight such windows is divided into eight.
    """
    window_s = min(PROBE_WINDOW_S, max(trace.duration_s / FEWEST_PROBES, 1.0))
    rates = [window.rate_req_s for window in rate_windows(trace, window_s=window_s)]
    return float(np.percentile(rates, 95, method="higher"))


def unrepresentative(trace: Trace, *, start_s: float, end_s: float) -> tuple[str, str] | None:
    """Return (UNREPRESENTATIVE_WINDOW, sentence) for a window that is nearly idle, else None."""
    inside = _counts(trace, np.array([start_s]), end_s - start_s)
    rate, p95 = float(inside[0]) / (end_s - start_s), p95_rate_req_s(trace)
    if rate >= IDLE_FRAC * p95:
        return None
    return (
        "UNREPRESENTATIVE_WINDOW",
        f"window {start_s:g} to {end_s:g} s holds window_rps={rate:.3f} where the trace has "
        f"trace_p95_rps={p95:.3g}: an idle engine ties all trials; take the peak window",
    )


def cut(trace: Trace, start_s: float, end_s: float) -> Trace:
    """Return the requests with start_s <= arrival < end_s, starting at 0 again.

    A nearly idle window adds the warning UNREPRESENTATIVE_WINDOW.

    Raises:
        TraceError: if the window is empty or holds no request.
    """
    _positive(end_s - start_s, "end_s - start_s")
    first, last = np.searchsorted(trace.arrival_s, [start_s, end_s], side="left")
    source = f"{trace.source} cut to {start_s:g}..{end_s:g} s"
    part = select_rows(trace, np.arange(first, last), source=source)
    warning = unrepresentative(trace, start_s=start_s, end_s=end_s)
    return part if warning is None else replace(part, notes=with_warning(part.notes, *warning))


def at_rate(trace: Trace, rate_req_s: float) -> Trace:
    """Return the trace replayed at a mean rate: every gap times the same number.

    The gaps' coefficient of variation stays; how long a regime lasts does not.

    Raises:
        TraceError: for a rate that is not positive, or a trace that has no rate of its own.
    """
    _positive(rate_req_s, "rate_req_s")
    if trace.duration_s <= 0:
        raise TraceError(
            f"{trace.source} holds {len(trace)} requests over 0 s, so it has no rate to change to "
            f"rate_req_s={rate_req_s:g}; needed requests at different times"
        )
    factor = (len(trace) - 1) / trace.duration_s / rate_req_s
    source = f"{trace.source} at {rate_req_s:g} req/s"
    return replace(trace, arrival_s=trace.arrival_s * factor, source=source, origin_utc=None)


def thin_by_session(trace: Trace, *, replicas: int, seed: int, failover: bool = False) -> Trace:
    """Return one engine's share of a fleet's trace: 1/N of its requests, by whole sessions.

    With ``failover`` one of the N engines is gone and the share is 1/(N - 1). Sessions are taken
    in a drawn order until the share is reached; requests without session data count as sessions
    of one.

    Raises:
        TraceError: if there is no engine to take the share.
    """
    engines = replicas - 1 if failover else replicas
    if engines < 1:
        raise TraceError(
            f"replicas={replicas} with failover={failover} leaves no engine; needed at least 1; "
            f"raise replicas"
        )
    if engines == 1:
        return trace
    keys = trace.session if trace.session is not None else range(len(trace))
    number: dict[object, int] = {}
    session = np.array([number.setdefault(key or row, len(number)) for row, key in enumerate(keys)])
    order = np.random.default_rng(seed).permutation(len(number))
    sizes = np.bincount(session, minlength=len(number))[order]
    taken = order[: max(1, int(np.argmin(np.abs(np.cumsum(sizes) - len(trace) / engines))) + 1)]
    rows = np.flatnonzero(np.isin(session, taken))
    unit = "requests" if trace.session is None else "sessions"
    text = f"{trace.source} thinned to 1/{engines} by {unit}, seed {seed}"
    return select_rows(trace, rows, source=text)


def _pick(
    trace: Trace, starts: NDArray[np.float64], length_s: float, rule: str, *, busiest: bool
) -> Window:
    counts = _counts(trace, starts, length_s)
    best = int(np.argmax(counts) if busiest else np.argmin(counts))
    start = float(starts[best])
    return Window(start_s=start, end_s=start + length_s, requests=int(counts[best]), rule=rule)


def _counts(trace: Trace, starts: NDArray[np.float64], length_s: float) -> NDArray[np.int64]:
    arrival = trace.arrival_s
    return np.asarray(
        np.searchsorted(arrival, starts + length_s, side="left")
        - np.searchsorted(arrival, starts, side="left")
    )


def _fits(trace: Trace, length_s: float) -> None:
    _positive(length_s, "length_s")
    if trace.duration_s < length_s:
        raise TraceError(
            f"{trace.source} lasts {trace.duration_s:.1f} s, shorter than length_s={length_s:g}; "
            f"needed a longer trace; shorten the window"
        )


def _positive(value: float, name: str) -> None:
    if not value > 0:
        raise TraceError(f"{name}={value:g} s is no length; needed more than 0")
