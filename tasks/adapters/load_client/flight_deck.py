"""All requests of one worker: which are under way, which have landed, and counts of both."""

import time
from collections.abc import Callable

from tasks.adapters.load_client.flight import NS_PER_S, Flight
from tasks.adapters.load_client.load_job import LoadSample
from tasks.adapters.load_client.pool import ConnectionPool
from tasks.domain.schedule import ScheduledRequest


class FlightDeck:
    """Launches requests and keeps them; ``after_landing`` is called with each that ends."""

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        timeout_s: float,
        after_landing: Callable[[Flight], None],
    ) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._after_landing = after_landing
        self._in_flight: set[Flight] = set()
        self._first_tokens_s: list[float] = []
        self._errors = 0
        self.landed: list[Flight] = []

    @property
    def empty(self) -> bool:
        """Tell whether nothing is in flight."""
        return not self._in_flight

    def launch(self, request: ScheduledRequest, data: bytes, *, wanted_ns: int) -> None:
        """Send a request now."""
        flight = self._flight(request, data, wanted_ns)
        self._in_flight.add(flight)
        flight.launch(self._timeout_s)

    def refuse(self, request: ScheduledRequest, *, wanted_ns: int) -> None:
        """Note a request that is never sent as CANCELLED."""
        self._flight(request, b"", wanted_ns).cancel()

    def cancel(self) -> None:
        """End everything in flight as CANCELLED."""
        for flight in tuple(self._in_flight):
            flight.cancel()

    def expire(self, reason: str) -> None:
        """End everything in flight as TIMEOUT."""
        for flight in tuple(self._in_flight):
            flight.expire(reason)

    def sample(self, start_ns: int) -> LoadSample:
        """Return the counts so far."""
        first_tokens_s, self._first_tokens_s = self._first_tokens_s, []
        return LoadSample(
            elapsed_s=max(0.0, (time.perf_counter_ns() - start_ns) / NS_PER_S),
            sent=len(self.landed) + len(self._in_flight),
            done=len(self.landed),
            errors=self._errors,
            in_flight=len(self._in_flight),
            first_tokens_s=tuple(first_tokens_s),
        )

    def _flight(self, request: ScheduledRequest, data: bytes, wanted_ns: int) -> Flight:
        return Flight(request, data, wanted_ns=wanted_ns, pool=self._pool, on_landed=self._landed)

    def _landed(self, flight: Flight) -> None:
        self._in_flight.discard(flight)
        self.landed.append(flight)
        if flight.failure is not None:
            self._errors += 1
        first_ns = flight.stream.first_token_ns
        if first_ns is not None:
            self._first_tokens_s.append((first_ns - flight.wanted_ns) / NS_PER_S)
        self._after_landing(flight)
