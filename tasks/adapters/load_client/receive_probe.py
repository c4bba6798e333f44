"""How late this client stamps bytes: a kernel timer stands in for a socket that gets ready.

The probe's lateness is that of every other descriptor at the same instant: the wake-up of the
event loop plus the work queued before it.
"""

import time
from array import array

from tasks.adapters.load_client.kernel_timer import KernelTimer

INTERVAL_NS = 5_000_000


class ReceiveProbe:
    """Measures lateness every 5 ms from ``start`` to ``close``; ``lateness_ns`` holds it."""

    def __init__(self) -> None:
        self.lateness_ns = array("q")
        self._due_ns = 0
        self._timer = KernelTimer(self._tick)

    def start(self, at_ns: int) -> None:
        """Begin at an instant of perf_counter_ns."""
        self._due_ns = at_ns
        self._timer.arm(at_ns)

    def close(self) -> None:
        """Stop measuring."""
        self._timer.close()

    def _tick(self) -> None:
        now_ns = time.perf_counter_ns()
        # Every instant that a blocked loop missed is a sample: bytes arriving then were as late.
        while self._due_ns <= now_ns:
            self.lateness_ns.append(now_ns - self._due_ns)
            self._due_ns += INTERVAL_NS
        self._timer.arm(self._due_ns)
