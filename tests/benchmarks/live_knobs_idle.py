"""What the scheduler plug-in costs a schedule() call while nobody changes a value.

    python tests/benchmarks/live_knobs_idle.py [--calls N]

Times N calls of a schedule() that does nothing, with and without the plug-in's over it, the
channel's thread open and asleep as in an engine. Aim: under 20 microseconds a call. No vLLM is
needed: the plug-in adds the same to any scheduler.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tasks.adapters.vllm_server.live_knobs import apply_values
from tasks.adapters.vllm_server.live_scheduler.retune_scheduler import (
    Knobs,
    LiveKnobs,
    answer,
    open_channel,
)
from tasks.domain.parameters import ParameterValues

AIM_US = 20.0
ROUNDS = 5


class Bare:
    """A scheduler that plans nothing."""

    def __init__(self) -> None:
        self.max_num_running_reqs = 256
        self.max_num_scheduled_tokens = 8192
        self.running: list[int] = []

    def schedule(self, throttle_prefills: bool = False) -> None:
        return None


class Live(LiveKnobs, Bare):
    """The same under the plug-in's schedule()."""

    def __init__(self) -> None:
        Bare.__init__(self)
        self._knobs = Knobs(self, cap="max_num_running_reqs")


def call_us(scheduler: Any, calls: int) -> float:
    """Return the microseconds of one call, the best of a few rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            scheduler.schedule(False)
        best = min(best, time.perf_counter() - began)
    return best / calls * 1e6


def main() -> int:
    """Print the cost; 1 where it is above the aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    calls = parser.parse_args().calls
    live = Live()
    with tempfile.TemporaryDirectory() as folder:
        control = Path(folder) / "control"
        about = {"version": "-", "model": "-", "pid": 0, "started_with": {}}
        open_channel(str(control), lambda request: answer(request, live._knobs, about))
        apply_values(control, ParameterValues.of({"max_num_seqs": 16}), wait_s=1.0)
        bare_us, live_us = call_us(Bare(), calls), call_us(live, calls)
    cost_us = live_us - bare_us
    print(  # noqa: T201
        f"an empty schedule() {bare_us:.3f} us, under the plug-in {live_us:.3f} us: "
        f"{cost_us:.3f} us a call (aim: under {AIM_US:g} us; best of {ROUNDS} x {calls:,} calls)"
    )
    return 0 if cost_us < AIM_US else 1


if __name__ == "__main__":
    raise SystemExit(main())
