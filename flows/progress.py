"""Tells a person how far a run is: stage, arm, load point, figures so far and time left.

Writes to standard error, so that standard output holds results alone.
"""

import time

from rich.console import Console

from tasks.adapters.load_client.progress import ReplayProgress

_EVERY_S = 10.0


class Reporter:
    """Prints progress lines; ``quiet`` prints none.

    On a terminal the running figures stay on one line; elsewhere a line comes every ten seconds.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """Start the clock of the run."""
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._last_line = 0.0
        self._scope = ""
        self._left_s: float | None = None
        self._live = False

    def scope(self, text: str, *, left_s: float | None = None) -> None:
        """Name where the run is, for example ``demo · reference (1/2)``, and the time left."""
        self._scope = text
        self._left_s = left_s

    def line(self, text: str) -> None:
        """Print one line at once."""
        if self._live:
            self._console.print()
            self._live = False
        self._console.print(f"{self._clock()} {self._prefix()}{text}{self._left()}", markup=False)
        self._last_line = time.monotonic()

    def running(self, text: str) -> None:
        """Print a figure that changes: in place on a terminal, every ten seconds elsewhere."""
        if self._console.is_terminal:
            full = f"{self._clock()} {self._prefix()}{text}{self._left()}"
            self._console.print(full[: self._console.width - 1], end="\r", markup=False)
            self._live = True
        elif time.monotonic() - self._last_line >= _EVERY_S:
            self.line(text)

    def load(self, point: str, duration_s: float, p: ReplayProgress) -> None:
        """Print the running figures of one load point."""
        self.running(
            f"load {point}: {min(p.elapsed_s, duration_s):.0f}/{duration_s:.0f} s, "
            f"offered {p.offered_req_s:.2f} achieved {p.achieved_req_s:.2f} req/s, "
            f"{p.in_flight} in flight, TTFT p50 {_s(p.ttft_p50_s)} p99 {_s(p.ttft_p99_s)}, "
            f"{p.errors} errors (n={p.done})"
        )

    def _clock(self) -> str:
        spent = int(time.monotonic() - self._started)
        return f"[{spent // 60:02d}:{spent % 60:02d}]"

    def _prefix(self) -> str:
        return f"{self._scope} · " if self._scope else ""

    def _left(self) -> str:
        if self._left_s is None:
            return ""
        minutes = self._left_s / 60
        return f" · about {minutes:.0f} min left" if minutes >= 1 else " · under 1 min left"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
