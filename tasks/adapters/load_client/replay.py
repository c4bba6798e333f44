"""Offer a schedule to an endpoint and return one record a request.

Open loop (``replay``): absolute send times. Closed loop (``closed_loop``): a number in flight.
Judges nothing: whether the client was late is reported, not decided, here.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tasks.adapters.load_client.descriptors import (
    TOO_LOW,
    descriptor_shortfall,
    raised_soft_limit,
)
from tasks.adapters.load_client.event_loop import run_to_end
from tasks.adapters.load_client.load_job import LoadJob, LoadResult
from tasks.adapters.load_client.load_run import run_load
from tasks.adapters.load_client.pool import Origin
from tasks.adapters.load_client.progress import ProgressMeter, ReplayProgress
from tasks.adapters.load_client.request_body import Api, Decode, RequestWriter, api_key
from tasks.adapters.load_client.workers import run_workers
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError, MeasurementInvalidError
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.schedule import RequestSchedule

NS_PER_S = 1e9
Replayed = tuple[tuple[RequestRecord, ...], ClientReport]
OnProgress = Callable[[ReplayProgress], None]


def replay(
    endpoint: Endpoint,
    schedule: RequestSchedule,
    *,
    vocabulary: PromptVocabulary,
    salt: str,
    request_timeout_s: float = 120.0,
    drain_timeout_s: float = 60.0,
    workers: int = 1,
    api: Api = "completions",
    extensions: bool = True,
    decode: Decode | None = None,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Replayed:
    """Send every request at its due time, whatever the others do (open loop).

    Requests still open drain_timeout_s after the last due time end as TIMEOUT; ``stop`` (asked
    four times a second) returning True ends the run with CANCELLED records. Both callbacks may
    come from another thread.

    Raises:
        ConfigError: for a bad URL, a missing API key, or chat without ``decode``.
    """
    job = LoadJob(
        writer=_writer(endpoint, schedule, vocabulary, salt, api, extensions, decode),
        requests=schedule.requests,
        last_due_s=max((request.due_s for request in schedule.requests), default=0.0),
        request_timeout_s=request_timeout_s,
        drain_timeout_s=drain_timeout_s,
    )
    meter = ProgressMeter(
        offered_req_s=schedule.offered_req_s,
        total=len(schedule.requests),
        on_progress=on_progress,
        stop=stop,
    )
    return _run(job, meter, workers=min(workers, max(1, len(schedule.requests))))


def closed_loop(
    endpoint: Endpoint,
    schedule: RequestSchedule,
    *,
    concurrency: int,
    duration_s: float,
    vocabulary: PromptVocabulary,
    salt: str,
    request_timeout_s: float = 120.0,
    drain_timeout_s: float = 60.0,
    workers: int = 1,
    api: Api = "completions",
    extensions: bool = True,
    decode: Decode | None = None,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Replayed:
    """Keep ``concurrency`` requests in flight for ``duration_s``, shapes taken cyclically.

    Requests in flight at the end are drained and count. A record's due_s is its send time and its
    index the request's number in this run; send lag is the time from a slot getting free to the
    bytes being written.

    Raises:
        ConfigError: as ``replay``, and for a concurrency below 1 or an empty schedule.
        MeasurementInvalidError: RLIMIT_NOFILE_TOO_LOW, before anything is sent.
    """
    if concurrency < 1 or not schedule.requests:
        raise ConfigError(
            f"a closed loop needs concurrency >= 1 and a request shape; got concurrency="
            f"{concurrency} and {len(schedule.requests)} requests in the schedule"
        )
    shortfall = descriptor_shortfall(concurrency=concurrency, soft=raised_soft_limit(concurrency))
    if shortfall is not None:
        raise MeasurementInvalidError(shortfall[1], code=TOO_LOW)
    job = LoadJob(
        writer=_writer(endpoint, schedule, vocabulary, salt, api, extensions, decode),
        requests=schedule.requests,
        last_due_s=duration_s,
        request_timeout_s=request_timeout_s,
        drain_timeout_s=drain_timeout_s,
        concurrency=concurrency,
    )
    meter = ProgressMeter(offered_req_s=None, total=None, on_progress=on_progress, stop=stop)
    return _run(job, meter, workers=min(workers, concurrency))


def _writer(
    endpoint: Endpoint,
    schedule: RequestSchedule,
    vocabulary: PromptVocabulary,
    salt: str,
    api: Api,
    extensions: bool,
    decode: Decode | None,
) -> RequestWriter:
    Origin.of(endpoint.url)
    api_key(endpoint)
    if api == "chat" and decode is None:
        raise ConfigError(
            "api='chat' sends text, so decode= is needed; give the tokenizer's decode function"
        )
    return RequestWriter(
        endpoint=endpoint,
        vocabulary=vocabulary,
        seed=schedule.seed,
        salt=salt,
        prefix_block_tokens=schedule.prefix_block_tokens,
        api=api,
        extensions=extensions,
        decode=decode,
    )


def _run(job: LoadJob, meter: ProgressMeter, *, workers: int) -> Replayed:
    if workers > 1:
        results = run_workers(
            [job.share(worker, workers) for worker in range(workers)], take=meter.take
        )
    else:
        results = (run_to_end(lambda: run_load(job, tick=meter.take)),)
    records = sorted((r for result in results for r in result.records), key=lambda r: r.index)
    return tuple(records), _report(results)


def _report(results: Sequence[LoadResult]) -> ClientReport:
    """Join the workers' reports: lags over all requests, lateness and CPU of the worst worker."""
    lag_ns = [lag for result in results for lag in result.send_lag_ns]
    late = [_percentile_s(result.lateness_ns, 99) for result in results]
    return ClientReport(
        requests=sum(len(result.records) for result in results),
        send_lag_p50_s=_percentile_s(lag_ns, 50),
        send_lag_p99_s=_percentile_s(lag_ns, 99),
        receive_error_p99_s=max((value for value in late if value is not None), default=None),
        cpu_frac=max(
            (result.cpu_s / result.wall_s for result in results if result.wall_s > 0),
            default=None,
        ),
        workers=len(results),
        wall_s=max((result.wall_s for result in results), default=math.nan),
        limits=tuple(dict.fromkeys(limit for result in results for limit in result.limits)),
    )


def _percentile_s(values_ns: Sequence[int], percent: float) -> float | None:
    if not len(values_ns):
        return None
    return float(np.percentile(values_ns, percent)) / NS_PER_S
