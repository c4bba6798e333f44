"""A measurement cut into windows of the schedule, and the requests in flight over time.

Windows are the unit of resampling: requests of one burst are not independent. Knows spans of
time only; what makes a request good is decided by the caller.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.request_record import RequestRecord

GROWTH_OF_ARRIVALS_FRAC = 0.10
GROWTH_SIGMAS = 3.0
UNFINISHED = frozenset({"TIMEOUT", "CANCELLED", "STOPPED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One window of the schedule: the requests that were due in [start_s, end_s).

    n_good: those that kept every limit of the SLO, whenever they ended. goodput_req_s: n_good /
    (end_s - start_s). diverged: whether the requests in flight kept growing, see queue_diverges.
    """

    start_s: float
    end_s: float
    n: int
    n_good: int
    goodput_req_s: float
    diverged: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InFlight:
    """Begin and end of every request in seconds from the schedule's start; shape (n,)."""

    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]

    def at(self, t_s: float) -> int:
        """Return how many requests had begun and not ended at a time."""
        return int(((self.begin_s <= t_s) & (self.end_s > t_s)).sum())

    def mean(self, start_s: float, end_s: float) -> float:
        """Return the time average between two times: overlap seconds / seconds."""
        overlap = np.minimum(self.end_s, end_s) - np.maximum(self.begin_s, start_s)
        return float(np.clip(overlap, 0.0, None).sum()) / (end_s - start_s)


def in_flight(records: Sequence[RequestRecord], *, since_send: bool) -> InFlight:
    """Return the spans of requests from due (or sent) time to the last sign of them.

    A request that was never sent has no span since its send, and one of no length since due. One
    that was given up (UNFINISHED) was in flight to the end: its last sign is not its end.
    """
    begins, ends = [], []
    for record in records:
        begin = record.sent_s if since_send else record.due_s
        if begin is None:
            continue
        seen = (record.last_token_s, record.first_token_s, record.headers_s, record.sent_s)
        begins.append(begin)
        given_up = record.error_code in UNFINISHED and record.sent_s is not None
        ends.append(math.inf if given_up else max([begin, *(t for t in seen if t is not None)]))
    return InFlight(begin_s=np.array(begins, dtype=np.float64), end_s=np.array(ends, dtype=float))


def grows(*, at_half: int, at_end: int, arrivals: int) -> bool:
    """Tell whether the requests in flight grew in a window's second half as a queue does.

    True where the growth exceeds 10 % of the half's arrivals and three standard deviations of
    Poisson counts, 3 sqrt(at_half + at_end). The first half is left out: an empty engine fills.
    """
    growth = at_end - at_half
    noise = GROWTH_SIGMAS * math.sqrt(at_half + at_end)
    return growth > max(GROWTH_OF_ARRIVALS_FRAC * arrivals, noise)


def queue_diverges(spans: InFlight, *, start_s: float, end_s: float) -> bool:
    """Tell whether requests in flight kept growing between two times; see ``grows``."""
    half = (start_s + end_s) / 2
    arrivals = int(((spans.begin_s >= half) & (spans.begin_s < end_s)).sum())
    return grows(at_half=spans.at(half), at_end=spans.at(end_s), arrivals=arrivals)


def window_edges(start_s: float, end_s: float, window_s: float) -> tuple[tuple[float, float], ...]:
    """Return the full windows of ``window_s`` seconds between two times, first to last.

    A rest shorter than a window is left out, so that all windows weigh the same; a span shorter
    than one window is a single window.
    """
    count = math.floor((end_s - start_s) / window_s + 1e-9)
    if count == 0:
        return ((start_s, end_s),)
    return tuple((start_s + i * window_s, start_s + (i + 1) * window_s) for i in range(count))


def window_results(
    records: Sequence[RequestRecord],
    good: Sequence[bool],
    *,
    spans: InFlight,
    edges: Sequence[tuple[float, float]],
) -> tuple[WindowResult, ...]:
    """Return one result a window; ``good`` says of each record whether it kept the SLO.

    spans: of all requests, those of the warm-up included, for the requests in flight.
    """
    due = np.array([r.due_s for r in records], dtype=np.float64)
    kept = np.array(good, dtype=bool)
    results = []
    for start, end in edges:
        inside = (due >= start) & (due < end)
        n_good = int((inside & kept).sum())
        results.append(
            WindowResult(
                start_s=start,
                end_s=end,
                n=int(inside.sum()),
                n_good=n_good,
                goodput_req_s=n_good / (end - start),
                diverged=queue_diverges(spans, start_s=start, end_s=end),
            )
        )
    return tuple(results)
