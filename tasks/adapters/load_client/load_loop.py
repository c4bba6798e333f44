"""When requests are launched: at absolute due times (open loop) or as slots get free (closed)."""

import asyncio
import time

from tasks.adapters.load_client.flight import NS_PER_S, Flight
from tasks.adapters.load_client.flight_deck import FlightDeck
from tasks.adapters.load_client.kernel_timer import KernelTimer
from tasks.adapters.load_client.load_job import LoadJob
from tasks.adapters.load_client.pool import ConnectionPool
from tasks.adapters.load_client.request_body import PreparedRequests

# A server that refuses at once would otherwise be asked as fast as this client can.
PAUSE_AFTER_FAILURE_S = 0.1


class OpenLoop:
    """Launches each request at its due time, whatever the others do."""

    def __init__(self, job: LoadJob, prepared: PreparedRequests, pool: ConnectionPool) -> None:
        self.deck = FlightDeck(
            pool, timeout_s=job.request_timeout_s, after_landing=self._after_landing
        )
        self.finished = asyncio.Event()
        self._job = job
        self._prepared = prepared
        self._timer = KernelTimer(self._on_time)
        self._start_ns = 0
        self._next = prepared.pop()

    def start(self, start_ns: int) -> None:
        """Begin at an instant of perf_counter_ns."""
        self._start_ns = start_ns
        self._arm()

    def cancel(self) -> None:
        """Stop: what is in flight, and what was not sent yet, ends as CANCELLED."""
        while self._next is not None:
            self.deck.refuse(self._next[0], wanted_ns=self._due_ns(self._next[0].due_s))
            self._next = self._prepared.pop()
        self.deck.cancel()
        self.finished.set()

    def close(self) -> None:
        """Give the timer back."""
        self._timer.close()

    def _due_ns(self, due_s: float) -> int:
        return self._start_ns + round(due_s * NS_PER_S)

    def _arm(self) -> None:
        if self._next is not None:
            self._timer.arm(self._due_ns(self._next[0].due_s))
        elif self.deck.empty:
            self.finished.set()
        else:
            self._timer.arm(self._due_ns(self._job.last_due_s + self._job.drain_timeout_s))

    def _on_time(self) -> None:
        if self._next is None:
            self.deck.expire(
                f"still open drain_timeout_s={self._job.drain_timeout_s:g} after the last due time"
            )
            self.finished.set()
            return
        while self._next is not None:
            request, data = self._next
            due_ns = self._due_ns(request.due_s)
            if due_ns > time.perf_counter_ns():
                break
            self.deck.launch(request, data, wanted_ns=due_ns)
            self._next = self._prepared.pop()
        self._arm()
        asyncio.get_running_loop().call_soon(self._prepared.fill, 1)

    def _after_landing(self, flight: Flight) -> None:
        if self._next is None and self.deck.empty:
            self.finished.set()


class ClosedLoop:
    """Keeps a number of requests in flight until the window ends, then drains."""

    def __init__(self, job: LoadJob, prepared: PreparedRequests, pool: ConnectionPool) -> None:
        self.deck = FlightDeck(
            pool, timeout_s=job.request_timeout_s, after_landing=self._after_landing
        )
        self.finished = asyncio.Event()
        self._job = job
        self._prepared = prepared
        self._timer = KernelTimer(self._on_time)
        self._start_ns = 0
        self._end_ns = 0
        self._pauses = 0
        self._started = False
        self._stopped = False

    def start(self, start_ns: int) -> None:
        """Begin at an instant of perf_counter_ns."""
        self._start_ns = start_ns
        self._end_ns = start_ns + round(self._job.last_due_s * NS_PER_S)
        self._timer.arm(start_ns)

    def cancel(self) -> None:
        """Stop: what is in flight ends as CANCELLED."""
        self._stopped = True
        self.deck.cancel()
        self.finished.set()

    def close(self) -> None:
        """Give the timer back."""
        self._timer.close()

    def _on_time(self) -> None:
        if self._started:
            self.deck.expire(
                f"still open drain_timeout_s={self._job.drain_timeout_s:g} after the window's end"
            )
            self.finished.set()
            return
        self._started = True
        self._timer.arm(self._end_ns + round(self._job.drain_timeout_s * NS_PER_S))
        for _ in range(self._job.concurrency or 0):
            self._launch(time.perf_counter_ns())
        self._check_finished()

    def _launch(self, wanted_ns: int) -> None:
        prepared = self._prepared.pop()
        if prepared is not None:
            request, data = prepared
            self.deck.launch(request, data, wanted_ns=wanted_ns)
            asyncio.get_running_loop().call_soon(self._prepared.fill, 1)

    def _launch_after_pause(self) -> None:
        self._pauses -= 1
        if not self._over():
            self._launch(time.perf_counter_ns())
        self._check_finished()

    def _after_landing(self, flight: Flight) -> None:
        if self._over():
            self._check_finished()
        elif flight.failure is None:
            self._launch(time.perf_counter_ns())
        else:
            self._pauses += 1
            loop = asyncio.get_running_loop()
            loop.call_later(PAUSE_AFTER_FAILURE_S, self._launch_after_pause)

    def _over(self) -> bool:
        return self._stopped or time.perf_counter_ns() >= self._end_ns

    def _check_finished(self) -> None:
        if self.deck.empty and not self._pauses:
            self.finished.set()
