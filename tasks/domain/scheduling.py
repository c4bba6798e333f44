"""From a trace to absolute send times: scaled, cut or cycled, the same for every trial."""

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import TraceError
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tasks.domain.trace import Trace
from tasks.domain.trace_selection import LARGEST_SILENT_DROP_FRAC, fit_context


def build_schedule(
    trace: Trace,
    *,
    duration_s: float,
    rate_scale: float = 1.0,
    seed: int,
    max_model_len: int | None = None,
    max_dropped_frac: float = LARGEST_SILENT_DROP_FRAC,
) -> RequestSchedule:
    """Return the requests to send in ``duration_s`` seconds at ``rate_scale`` times the rate.

    due = arrival / rate_scale: dividing the time axis keeps the gaps' coefficient of variation.
    A trace shorter than duration_s x rate_scale is cycled; the seam between its last and its
    first request is one mean gap, and a later cycle gets prefix blocks of its own, so that the
    repetition makes no reuse. With ``max_model_len`` requests that do not fit are dropped first.

    Raises:
        TraceError: if a number is not positive, or no request would be sent.
    """
    for name, value in (("duration_s", duration_s), ("rate_scale", rate_scale)):
        if not (value > 0 and np.isfinite(value)):
            raise TraceError(f"{name}={value} makes no schedule; needed a finite number above 0")
    if len(trace) == 0:
        raise TraceError(
            f"{trace.source} holds no request, so a schedule of duration_s={duration_s:g} would "
            f"send nothing; needed at least one; load or cut the trace anew"
        )
    if max_model_len is not None:
        trace = fit_context(trace, max_model_len, max_dropped_frac=max_dropped_frac)
    needed_s = duration_s * rate_scale
    period_s = trace.duration_s + seam_s(trace)
    cycles = max(1, int(np.ceil(needed_s / period_s))) if period_s > 0 else 1
    requests: list[ScheduledRequest] = []
    for cycle in range(cycles):
        due = (trace.arrival_s + cycle * period_s) / rate_scale
        _append(requests, trace, due[due < duration_s], cycle)
    return RequestSchedule(
        requests=tuple(requests),
        duration_s=duration_s,
        seed=seed,
        prefix_block_tokens=trace.prefix_block_tokens,
        notes=_notes(trace, cycles, period_s),
    )


def seam_s(trace: Trace) -> float:
    """Return the seconds between the last request of a cycle and the first of the next.

    One mean gap, duration / (n - 1), so that cycling keeps the trace's own rate; 0 for one
    request, which is then sent once.
    """
    return trace.duration_s / (len(trace) - 1) if len(trace) > 1 else 0.0


def _append(
    requests: list[ScheduledRequest], trace: Trace, due: NDArray[np.float64], cycle: int
) -> None:
    blocks = trace.prefix_blocks
    highest = 0
    if blocks is not None and cycle > 0:
        highest = 1 + max((max(ids) for ids in blocks if ids), default=0)
    for row, due_s in enumerate(due.tolist()):
        prompt = int(trace.prompt_tokens[row])
        # A trace's last block may be partly filled; only whole blocks can be sent as blocks.
        whole = () if blocks is None else blocks[row][: prompt // trace.prefix_block_tokens]
        requests.append(
            ScheduledRequest(
                index=len(requests),
                due_s=due_s,
                prompt_tokens=prompt,
                output_tokens=int(trace.output_tokens[row]),
                prefix_blocks=tuple(block + cycle * highest for block in whole),
            )
        )


def _notes(trace: Trace, cycles: int, period_s: float) -> tuple[tuple[str, str], ...]:
    if cycles == 1:
        return ()
    text = (
        f"trace of {trace.duration_s:g} s cycled {cycles} times with a seam of "
        f"{seam_s(trace):g} s (one mean gap), period {period_s:g} s of trace time"
    )
    return (("TRACE_CYCLED", text),)
