"""What an engine goes through before it is measured: filled to its limit once, then warm rounds.

Knows schedules and how to offer one; the engine is the caller's.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from tasks.domain.schedule import RequestSchedule

ROUNDS_AT_MOST = 4
ENOUGH_FRAC = 0.25
GAP_S = 0.5
STRESS_OUTPUT_TOKENS = 4
STRESS_PROMPT_TOKENS = 128  # 1,024 of them fill any step's token budget many times over

Offer = Callable[[RequestSchedule], None]


def fill_to_limit(shapes: RequestSchedule, at_once: int, offer: Offer) -> None:
    """Offer as many short requests at once as the engine says it takes."""
    drawn = [shapes.requests[i % len(shapes.requests)] for i in range(at_once)]
    requests = tuple(
        replace(
            request,
            index=i,
            due_s=0.0,
            prompt_tokens=min(request.prompt_tokens, STRESS_PROMPT_TOKENS),
            prefix_blocks=(),
            output_tokens=STRESS_OUTPUT_TOKENS,
        )
        for i, request in enumerate(drawn)
    )
    offer(replace(shapes, requests=requests, duration_s=1.0))


def warm_rounds(regime: RequestSchedule, requests: int, offer: Offer) -> None:
    """Offer rounds of the regime's first requests until two in a row take alike."""
    spaced = tuple(
        replace(request, due_s=i * GAP_S) for i, request in enumerate(regime.requests[:requests])
    )
    schedule = replace(regime, requests=spaced, duration_s=requests * GAP_S)
    previous: float | None = None
    for _ in range(ROUNDS_AT_MOST):
        began = time.monotonic()
        offer(schedule)
        seconds = time.monotonic() - began
        if previous is not None and abs(seconds - previous) <= ENOUGH_FRAC * previous:
            return
        previous = seconds
