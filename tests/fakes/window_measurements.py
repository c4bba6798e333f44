"""Measurements with chosen numbers of good requests in each window."""

import functools
from dataclasses import replace

from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement, reduce_records
from tasks.domain.measurement_windows import WindowResult
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.slo import Slo

WINDOW_S = 30.0


@functools.cache
def template() -> Measurement:
    """Return a measurement of one good request, to be filled with other windows."""
    record = RequestRecord(
        index=0,
        due_s=0.0,
        asked_prompt_tokens=10,
        asked_output_tokens=2,
        sent_s=0.0,
        first_token_s=0.1,
        last_token_s=0.2,
        completion_tokens=2,
    )
    client = ClientReport(
        requests=1,
        send_lag_p50_s=None,
        send_lag_p99_s=None,
        receive_error_p99_s=None,
        cpu_frac=None,
        workers=1,
        wall_s=1.0,
    )
    return reduce_records(
        (record,),
        load_point=LoadPoint(kind=LoadKind.OPEN, duration_s=300.0, rate_scale=1.0),
        schedule_duration_s=300.0,
        slo=Slo(ttft_s=1.0, attainment_frac=0.9),
        client=client,
    )


def run(
    *good: int, offered: int = 100, repeat: int = 0, window_s: float = WINDOW_S, sha: str = "s"
) -> Measurement:
    """Return a measurement whose windows hold these numbers of good requests."""
    windows = tuple(
        WindowResult(
            start_s=i * window_s,
            end_s=(i + 1) * window_s,
            n=offered,
            n_good=n,
            goodput_req_s=n / window_s,
            diverged=False,
        )
        for i, n in enumerate(good)
    )
    total_s = window_s * len(good)
    return replace(
        template(),
        load_point=LoadPoint(kind=LoadKind.OPEN, duration_s=total_s, rate_scale=1.0, repeat=repeat),
        windows=windows,
        n_requests=offered * len(good),
        n_good=sum(good),
        attainment_frac=sum(good) / (offered * len(good)),
        goodput_req_s=sum(good) / total_s,
        flags=(),
        schedule_sha256=sha,
    )
