"""Made measurements and outcomes for tests of the state machines: real reductions of made rows."""

from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement, reduce_records
from tasks.domain.profile import Profile
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.request_table import request_table
from tasks.domain.slo import Slo
from tasks.domain.steps import Measured

CHAT_SLO = Slo(ttft_s=1.0, tpot_s=0.1, attainment_frac=0.9)


def client_on_time(requests: int) -> ClientReport:
    return ClientReport(
        requests=requests,
        send_lag_p50_s=0.0002,
        send_lag_p99_s=0.001,
        receive_error_p99_s=0.001,
        cpu_frac=0.1,
        workers=1,
        wall_s=60.0,
    )


def late_client(requests: int) -> ClientReport:
    return ClientReport(
        requests=requests,
        send_lag_p50_s=0.4,
        send_lag_p99_s=0.9,
        receive_error_p99_s=0.5,
        cpu_frac=1.0,
        workers=1,
        wall_s=60.0,
    )


def record(index: int, due_s: float, *, ttft_s: float, gap_s: float = 0.02) -> RequestRecord:
    """Return a request of 11 tokens: the first after ttft_s, the rest gap_s apart."""
    stamps = tuple((due_s + ttft_s + i * gap_s, 1) for i in range(11))
    return RequestRecord(
        index=index,
        due_s=due_s,
        asked_prompt_tokens=32,
        asked_output_tokens=11,
        sent_s=due_s,
        headers_s=due_s + 0.001,
        first_token_s=stamps[0][0],
        last_token_s=stamps[-1][0],
        stamps=stamps,
        prompt_tokens=32,
        completion_tokens=11,
        http_status=200,
        finish_reason="length",
    )


def measurement(
    point: LoadPoint,
    *,
    good: int,
    bad: int = 0,
    slo: Slo = CHAT_SLO,
    client: ClientReport | None = None,
) -> Measurement:
    """Return a reduction of ``good`` fast and ``bad`` slow requests, spread evenly."""
    n = good + bad
    return reduce_records(
        records_of(point, good=good, bad=bad),
        load_point=point,
        schedule_duration_s=point.duration_s,
        slo=slo,
        client=client or client_on_time(n),
        window_s=30.0,
        schedule_sha256="s",
    )


def records_of(point: LoadPoint, *, good: int, bad: int = 0) -> list[RequestRecord]:
    """Return ``good`` fast and ``bad`` slow requests, spread evenly over the point's seconds."""
    n = good + bad
    slow = [(i + 1) * bad // n > i * bad // n for i in range(n)]
    return [record(i, i * point.duration_s / n, ttft_s=5.0 if slow[i] else 0.1) for i in range(n)]


def measured(
    point: LoadPoint,
    *,
    good: int,
    bad: int = 0,
    slo: Slo = CHAT_SLO,
    keep_requests: bool = False,
) -> Measured:
    rows = records_of(point, good=good, bad=bad)
    return Measured(
        measurement=measurement(point, good=good, bad=bad, slo=slo),
        profile=Profile(),
        requests=request_table(rows, duration_s=point.duration_s) if keep_requests else None,
    )


def open_point(duration_s: float = 180.0, repeat: int = 0) -> LoadPoint:
    return LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=duration_s, repeat=repeat)
