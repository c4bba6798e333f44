"""A load past the engine's limit is seen while it runs; one inside it, however bursty, is not."""

import math

import pytest

from tasks.domain.divergence import (
    DivergenceWatch,
    stopped_flag,
    stopped_records,
)
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import reduce_records
from tasks.domain.measurement_windows import in_flight
from tasks.domain.request_record import RequestRecord
from tasks.domain.sustainable_rate import rate_result
from tests.fakes.measurements import CHAT_SLO, client_on_time, record


def watched(
    in_flight_at: list[float], *, rate: float = 10.0, ttft_s: float | None = 5.0
) -> DivergenceWatch:
    """Return the watch after one look a second at these requests in flight."""
    watch = DivergenceWatch(ttft_limit_s=1.0)
    for second, waiting in enumerate(in_flight_at, start=1):
        sent = rate * second
        watch.take(
            elapsed_s=float(second),
            in_flight=round(waiting),
            done=round(sent - waiting),
            ttft_p50_s=ttft_s,
        )
        if watch.diverged:
            break
    return watch


def test_half_the_needed_speed_is_seen_after_twenty_seconds() -> None:
    # 10 req/s come, 5 leave: 5 more wait every second. The first look counts at 15 s, and what it
    # sees must hold for 5 s.
    watch = watched([5.0 * t for t in range(1, 61)])
    assert watch.stopped_at_s == 20.0


def test_a_queue_that_stays_is_no_divergence() -> None:
    assert not watched([40.0 + (t % 7) for t in range(1, 121)]).diverged


def test_growth_with_ttft_inside_the_slo_goes_on() -> None:
    assert not watched([5.0 * t for t in range(1, 61)], ttft_s=0.4).diverged


def test_no_first_token_at_all_is_as_late_as_can_be() -> None:
    assert watched([10.0 * t for t in range(1, 61)], ttft_s=None).stopped_at_s == 20.0


def test_a_burst_that_drains_within_seconds_goes_on() -> None:
    # 4 s of growth, then the queue is worked off.
    waiting = [2.0] * 26 + [30.0, 60.0, 90.0, 120.0, 90.0, 60.0, 30.0] + [2.0] * 27
    assert not watched(waiting).diverged


def test_without_a_ttft_limit_growth_alone_decides() -> None:
    watch = DivergenceWatch(ttft_limit_s=None)
    for second in range(1, 31):
        watch.take(elapsed_s=second, in_flight=5 * second, done=5 * second, ttft_p50_s=0.01)
    assert watch.stopped_at_s == 20


def cancelled(index: int, due_s: float, *, sent: bool = True) -> RequestRecord:
    return RequestRecord(
        index=index,
        due_s=due_s,
        asked_prompt_tokens=8,
        asked_output_tokens=4,
        sent_s=due_s if sent else None,
        error_code="CANCELLED",
    )


def test_a_stopped_loads_requests_are_those_that_were_due() -> None:
    records = [record(0, 1.0, ttft_s=0.1), cancelled(1, 2.0), cancelled(2, 9.0, sent=False)]
    kept = stopped_records(records, at_s=5.0)
    assert [(r.index, r.error_code) for r in kept] == [(0, None), (1, "STOPPED")]


def test_a_stopped_measurement_is_believed_fails_and_says_that_it_was_stopped() -> None:
    point = LoadPoint(kind=LoadKind.OPEN, rate_scale=2.0, duration_s=120.0)
    records = [record(i, 0.5 * i, ttft_s=0.1) for i in range(20)]
    records += [cancelled(20 + i, 10.0 + 0.5 * i) for i in range(20)]
    measured = reduce_records(
        stopped_records(records, at_s=20.0),
        load_point=point,
        schedule_duration_s=20.0,
        slo=CHAT_SLO,
        client=client_on_time(40),
        window_s=20.0,
    ).with_flags(stopped_flag(at_s=20.0, planned_s=120.0, n=40))
    assert not measured.invalid
    assert measured.attainment_frac == 0.5
    assert measured.offered_req_s == 2.0
    result = rate_result(measured)
    assert (result.diverged, result.attainment_frac, result.offered_req_s) == (True, 0.5, 2.0)
    assert "20 of 120 s" in measured.flags[-1].sentence


@pytest.mark.parametrize("code", ["TIMEOUT", "CANCELLED", "STOPPED"])
def test_a_request_that_was_given_up_was_in_flight_to_the_end(code: str) -> None:
    waiting = RequestRecord(
        index=0,
        due_s=1.0,
        asked_prompt_tokens=8,
        asked_output_tokens=4,
        sent_s=1.0,
        headers_s=1.1,
        error_code=code,
    )
    spans = in_flight([waiting], since_send=False)
    assert spans.at(100.0) == 1
    assert spans.end_s[0] == math.inf
    assert spans.mean(0.0, 2.0) == 0.5
