"""One worker's whole run: prepare, wait for the common start, offer the load, report."""

import asyncio
import gc
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tasks.adapters.load_client.descriptors import (
    RESERVED_DESCRIPTORS,
    descriptor_shortfall,
    raised_soft_limit,
)
from tasks.adapters.load_client.flight import NS_PER_S
from tasks.adapters.load_client.load_job import LoadJob, LoadResult, LoadSample
from tasks.adapters.load_client.load_loop import ClosedLoop, OpenLoop
from tasks.adapters.load_client.pool import ConnectionPool, Origin
from tasks.adapters.load_client.receive_probe import ReceiveProbe
from tasks.adapters.load_client.request_body import PreparedRequests, api_key

TICK_S = 0.25
SPARE_CONNECTIONS = 4
# Python's default of 5 ms lets another thread of this process hold up a stamp that long.
SWITCH_INTERVAL_S = 0.0005

Start = Callable[[], Awaitable[int]]
Tick = Callable[[LoadSample], bool]


async def start_soon() -> int:
    """Return a start instant just ahead, for a worker that waits for no other."""
    return time.perf_counter_ns() + 20_000_000


async def run_load(job: LoadJob, *, start: Start = start_soon, tick: Tick) -> LoadResult:
    """Offer a job's load and return every record.

    ``start`` is awaited when all is prepared and gives the first instant in perf_counter_ns;
    ``tick`` gets a sample four times a second, in another thread, and returns True to stop.
    """
    origin = Origin.of(job.writer.endpoint.url)
    key = api_key(job.writer.endpoint)
    head = job.writer.head_of(origin, key)
    limit = raised_soft_limit(job.concurrency or len(job.requests)) - RESERVED_DESCRIPTORS
    pool = ConnectionPool(origin, limit=limit, spare=True)
    prepared = PreparedRequests(job.in_order(), lambda request: job.writer.rendered(request, head))
    prepared.fill(None if job.concurrency is None else 2 * job.concurrency)
    loop = (
        OpenLoop(job, prepared, pool)
        if job.concurrency is None
        else ClosedLoop(job, prepared, pool)
    )
    probe = ReceiveProbe()
    try:
        await pool.warm(job.concurrency or min(SPARE_CONNECTIONS, len(job.requests)))
        start_ns = await start()
        with _undisturbed():
            cpu_before_s = time.thread_time()
            probe.start(start_ns)
            loop.start(start_ns)
            await _until_finished(loop, start_ns, tick)
            cpu_s = time.thread_time() - cpu_before_s
        wall_s = max((time.perf_counter_ns() - start_ns) / NS_PER_S, 0.0)
    finally:
        loop.close()
        probe.close()
        await pool.close()
    return _result(job, loop, probe, key, start_ns=start_ns, cpu_s=cpu_s, wall_s=wall_s)


async def _until_finished(loop: OpenLoop | ClosedLoop, start_ns: int, tick: Tick) -> None:
    while not loop.finished.is_set():
        try:
            async with asyncio.timeout(TICK_S):
                await loop.finished.wait()
        except TimeoutError:
            pass
        # In a thread: a callback that writes to a slow terminal must not hold arriving bytes up.
        stopped = await asyncio.to_thread(tick, loop.deck.sample(start_ns))
        if stopped and not loop.finished.is_set():
            loop.cancel()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep out of the run what delays stamps: the cycle collector and long turns of threads."""
    enabled, interval_s = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        if enabled:
            gc.enable()


def _result(
    job: LoadJob,
    loop: OpenLoop | ClosedLoop,
    probe: ReceiveProbe,
    key: str | None,
    *,
    start_ns: int,
    cpu_s: float,
    wall_s: float,
) -> LoadResult:
    flights = sorted(loop.deck.landed, key=lambda flight: flight.request.index)
    closed = job.concurrency is not None
    refused = sum(f.failure is not None and f.failure[0] == "CLIENT_LIMIT" for f in flights)
    limits: tuple[tuple[str, str], ...] = ()
    if refused:
        soft = raised_soft_limit(0)
        shortfall = descriptor_shortfall(concurrency=job.concurrency or len(flights), soft=soft)
        limits = (
            shortfall
            or ("CLIENT_LIMIT", f"{refused} requests were not sent: no socket could be opened"),
        )
    return LoadResult(
        records=tuple(
            flight.record(start_ns=start_ns, due_is_send=closed, secret=key) for flight in flights
        ),
        send_lag_ns=array("q", (f.sent_ns - f.wanted_ns for f in flights if f.sent_ns is not None)),
        lateness_ns=probe.lateness_ns,
        cpu_s=cpu_s,
        wall_s=wall_s,
        limits=limits,
    )
