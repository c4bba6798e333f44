"""What one load worker is told and what it reports; everything here can be pickled."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.adapters.load_client.request_body import RequestWriter
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import ScheduledRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Load for one worker.

    concurrency: requests kept in flight (closed loop), None for the open loop. last_due_s: due
    time of the last request over all workers, or the window's end (closed loop).
    first_index, index_step: numbers given to closed-loop requests.
    """

    writer: RequestWriter
    requests: tuple[ScheduledRequest, ...]
    last_due_s: float
    request_timeout_s: float
    drain_timeout_s: float
    concurrency: int | None = None
    first_index: int = 0
    index_step: int = 1

    def in_order(self) -> Iterator[ScheduledRequest]:
        """Yield requests in sending order: once (open loop), or again and again, renumbered."""
        if self.concurrency is None:
            yield from self.requests
            return
        index = self.first_index
        while self.requests:
            yield replace(self.requests[index % len(self.requests)], index=index)
            index += self.index_step

    def share(self, worker: int, workers: int) -> "LoadJob":
        """Return one worker's share: every ``workers``-th request or slot."""
        if self.concurrency is None:
            return replace(self, requests=self.requests[worker::workers])
        slots = len(range(worker, self.concurrency, workers))
        return replace(self, concurrency=slots, first_index=worker, index_step=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One worker's counts so far; first_tokens_s are the TTFTs seen since the sample before."""

    elapsed_s: float
    sent: int
    done: int
    errors: int
    in_flight: int
    first_tokens_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadResult:
    """One worker's outcome; send_lag_ns and lateness_ns hold one value a request or probe."""

    records: tuple[RequestRecord, ...]
    send_lag_ns: "array[int]"
    lateness_ns: "array[int]"
    cpu_s: float
    wall_s: float
    limits: tuple[tuple[str, str], ...]
