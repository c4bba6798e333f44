"""Records reduce to the numbers that a person computes by hand."""

import dataclasses
import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.codec import from_text, to_text
from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement, reduce_records
from tasks.domain.measurement_metrics import FORMULAS, to_metrics
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.slo import Slo

SLO = Slo(ttft_s=1.0, tpot_s=0.03)
OPEN = LoadPoint(kind=LoadKind.OPEN, duration_s=10.0, rate_scale=1.0)
CLIENT = ClientReport(
    requests=4,
    send_lag_p50_s=0.001,
    send_lag_p99_s=0.002,
    receive_error_p99_s=0.001,
    cpu_frac=0.2,
    workers=1,
    wall_s=10.0,
)


def request(
    index: int = 0,
    *,
    due: float = 0.0,
    ttft: float = 0.1,
    tpot: float = 0.01,
    tokens: int = 11,
    error: str | None = None,
) -> RequestRecord:
    first = due + ttft
    return RequestRecord(
        index=index,
        due_s=due,
        asked_prompt_tokens=100,
        asked_output_tokens=tokens,
        sent_s=due,
        headers_s=first,
        first_token_s=first,
        last_token_s=first + tpot * (tokens - 1),
        stamps=tuple((first + tpot * i, 1) for i in range(tokens)),
        prompt_tokens=100,
        completion_tokens=tokens,
        error_code=error,
    )


def measured(*records: RequestRecord, **changes: object) -> Measurement:
    given_values: dict[str, object] = {
        "load_point": OPEN,
        "schedule_duration_s": 10.0,
        "slo": SLO,
        "client": CLIENT,
        "window_s": 5.0,
    }
    return reduce_records(records, **{**given_values, **changes})  # type: ignore[arg-type]


def codes(measurement: Measurement) -> set[str]:
    return {flag.code for flag in measurement.flags}


def test_goodput_counts_only_successes_that_keep_every_limit() -> None:
    found = measured(
        request(0, due=0.0),
        request(1, due=1.0, ttft=1.5),  # TTFT over 1 s
        request(2, due=2.0, tpot=0.04),  # TPOT over 30 ms
        request(3, due=6.0, error="STREAM_ERROR"),  # fast, and failed
    )
    assert found.n_requests == 4
    assert found.n_ok == 3
    assert found.n_good == 1
    assert found.goodput_req_s == pytest.approx(0.1)  # 1 good request in 10 s
    assert found.attainment_frac == pytest.approx(0.25)
    assert found.error_rate_frac == pytest.approx(0.25)
    assert found.errors == (("STREAM_ERROR", 1),)
    assert not found.slo_ok
    assert [(w.start_s, w.end_s, w.n, w.n_good) for w in found.windows] == [
        (0.0, 5.0, 3, 1),
        (5.0, 10.0, 1, 0),
    ]
    assert found.windows[0].goodput_req_s == pytest.approx(0.2)


def test_rates_count_tokens_of_successes_inside_the_window_and_failed_ones_apart() -> None:
    late = request(1, due=9.9, ttft=0.05, tpot=0.01, tokens=11)  # 9.95 ... 10.05: six inside
    failed = request(2, due=3.0, tokens=7, error="STREAM_TRUNCATED")
    found = measured(request(0, tokens=11), late, failed)
    assert found.output_tok_s == pytest.approx((11 + 6) / 10, abs=0.11)
    assert found.partial_tokens == 7
    assert found.achieved_req_s == pytest.approx(0.1)  # the late one ends after the window
    assert found.offered_req_s == pytest.approx(0.3)
    assert found.input_tok_s == pytest.approx(20.0)  # 2 x 100 prompt tokens / 10 s


def test_tokens_without_stamps_are_spread_evenly_from_first_to_last() -> None:
    bare = dataclasses.replace(
        request(0, due=9.0, ttft=0.5, tpot=0.1, tokens=11), stamps=()
    )  # 9.5 ... 10.5: half of the 11 tokens by 10.0
    assert measured(bare).output_tok_s == pytest.approx(0.55)


def test_latency_counts_from_the_due_time_and_separately_from_the_send() -> None:
    late_client = dataclasses.replace(request(0, ttft=0.5), sent_s=0.2)
    found = measured(*(dataclasses.replace(late_client, index=i) for i in range(10)))
    assert found.ttft.p(0.5).value_s == pytest.approx(0.5)
    assert found.ttft_from_send.p(0.5).value_s == pytest.approx(0.3)
    assert found.e2e.p(0.5).value_s == pytest.approx(0.6)
    assert found.tpot.p(0.5).value_s == pytest.approx(0.01)


def test_a_chunk_of_two_tokens_is_two_gaps_of_half_the_time() -> None:
    record = dataclasses.replace(
        request(0, tokens=4), stamps=((0.1, 1), (0.3, 2), (0.4, 1)), last_token_s=0.4
    )
    found = measured(record)
    assert found.itl.n == 3  # 0.1, 0.1, 0.1
    assert found.itl.mean_s == pytest.approx(0.1)
    assert found.itl.max_s == pytest.approx(0.1)


def test_no_success_gives_no_latency_and_an_invalid_run() -> None:
    found = measured(request(0, error="HTTP_ERROR"), request(1, error="TIMEOUT"))
    assert "NO_SUCCESSFUL_REQUESTS" in codes(found)
    assert found.invalid
    assert found.goodput_req_s == 0.0
    metrics = to_metrics(found)
    assert metrics["bench/completed"] == 0.0
    assert metrics["bench/failed"] == 2.0
    assert metrics["bench/error_rate_frac"] == 1.0
    assert metrics["errors/timeout"] == 1.0
    assert not [name for name in metrics if name.startswith("latency/")]


def test_requests_of_the_warm_up_are_left_out_of_every_count() -> None:
    found = measured(
        request(0, due=1.0, ttft=9.0), request(1, due=5.0), request(2, due=6.0), warmup_s=5.0
    )
    assert (found.n_requests, found.n_good) == (2, 2)
    assert found.goodput_req_s == pytest.approx(0.4)  # 2 in 5 s
    assert found.ttft.max_s == pytest.approx(0.1)


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(MeasurementInvalidError, match="shorten the warm-up"):
        measured(request(0), warmup_s=5.0)
    with pytest.raises(MeasurementInvalidError, match="0 of 0"):
        measured()


def test_mean_concurrency_is_littles_law() -> None:
    # Two requests of 2 s each inside 10 s: 0.2 req/s x 2 s = 0.4 in flight.
    found = measured(
        request(0, due=1.0, ttft=1.0, tpot=0.1), request(1, due=4.0, ttft=1.0, tpot=0.1)
    )
    assert found.mean_concurrency == pytest.approx(0.4)


def test_token_drift_compares_the_usage_with_what_was_asked() -> None:
    record = dataclasses.replace(request(0), asked_prompt_tokens=1024, prompt_tokens=1011)
    found = measured(record)
    assert found.prompt_drift_frac is not None
    assert round(100 * found.prompt_drift_frac, 1) == -1.3
    assert "TOKEN_DRIFT" not in codes(found)
    short = measured(dataclasses.replace(record, completion_tokens=10, asked_output_tokens=11))
    assert "TOKEN_DRIFT" in codes(short)
    unknown = measured(dataclasses.replace(record, prompt_tokens=None))
    assert unknown.prompt_drift_frac is None


def test_the_attainment_interval_widens_when_bad_requests_come_in_bursts() -> None:
    def run(bad: set[int]) -> Measurement:
        records = [
            request(i, due=0.1 * i, ttft=1.5 if i in bad else 0.1) for i in range(100)
        ]  # 10 windows of 10 requests
        return measured(*records, window_s=1.0)

    spread, burst = run(set(range(0, 100, 10))), run(set(range(10)))
    assert spread.attainment_frac == burst.attainment_frac == 0.9
    assert burst.attainment_low_frac < spread.attainment_low_frac
    # One window of ten is all bad: 1/9 x 10 x sum of (hits - 9)^2 (90) / 100^2 = 0.01 = effect
    # 11.1 against 0.09 / 100, so 100 requests are worth 9.
    assert burst.attainment_method == "Wilson, n=100 requests in 10 windows, worth 9"


def test_few_windows_are_said_to_be_too_few() -> None:
    assert "2 windows are too few" in measured(request(0)).attainment_method


def test_a_growing_queue_marks_the_window_and_a_filling_engine_does_not() -> None:
    rate, steady_s = 20, 1.0
    steady = [request(i, due=i / rate, ttft=steady_s, tokens=2) for i in range(200)]
    growing = [request(i, due=i / rate, ttft=1.0 + i / 15, tokens=2) for i in range(200)]
    assert not any(w.diverged for w in measured(*steady, window_s=10.0).windows)
    overloaded = measured(*growing, window_s=10.0)
    assert overloaded.windows[0].diverged
    assert "QUEUE_DIVERGES" in codes(overloaded)


def test_a_measurement_comes_back_equal_through_json() -> None:
    found = measured(request(0), request(1, error="TIMEOUT"), hit_frac=0.5)
    assert from_text(Measurement, to_text(found)) == found


def test_metrics_are_in_milliseconds_and_leave_out_what_is_unknown() -> None:
    metrics = to_metrics(measured(*(request(i, due=0.1 * i) for i in range(50))))
    assert metrics["latency/ttft_p50_ms"] == pytest.approx(100.0)
    assert "latency/ttft_p99_ms" not in metrics  # 50 samples do not cover it
    assert "bench/prefix_hit_frac" not in metrics
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_metric_that_is_not_finite_is_refused_by_name() -> None:
    broken = dataclasses.replace(measured(request(0)), goodput_req_s=math.inf)
    with pytest.raises(MeasurementInvalidError, match="bench/goodput_req_s"):
        to_metrics(broken)


def test_every_rate_and_latency_has_its_formula_in_words() -> None:
    wanted = {"goodput_req_s", "attainment_frac", "ttft", "tpot", "itl", "e2e", "percentile"}
    assert wanted <= set(FORMULAS)


@given(
    st.lists(
        st.tuples(
            st.floats(min_value=0, max_value=9.9),
            st.floats(min_value=0, max_value=20),
            st.booleans(),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_windows_and_totals_agree_for_any_records(rows: list[tuple[float, float, bool]]) -> None:
    records = [
        request(i, due=due, ttft=ttft, error="TIMEOUT" if failed else None)
        for i, (due, ttft, failed) in enumerate(rows)
    ]
    found = measured(*records)
    assert sum(w.n for w in found.windows) == found.n_requests == len(rows)
    assert sum(w.n_good for w in found.windows) == found.n_good
    assert found.n_good <= found.n_ok <= found.n_requests
    assert found.attainment_low_frac <= found.attainment_frac <= found.attainment_high_frac
    assert from_text(Measurement, to_text(found)) == found


def table_records(rows: list[list[float]]) -> list[RequestRecord]:
    return [
        RequestRecord(
            index=int(i),
            due_s=due,
            asked_prompt_tokens=int(prompt),
            asked_output_tokens=int(output),
            sent_s=due + lag,
            first_token_s=due + ttft,
            last_token_s=due + e2e,
            completion_tokens=int(chunks),
        )
        for i, due, prompt, output, chunks, lag, ttft, _tpot, e2e in rows
    ]


def test_rows_measured_on_an_h200_give_the_published_attainment(shared_dir: Path) -> None:
    text = gzip.decompress((shared_dir / "tables/h200-bf16-azure-conv-r18.json.gz").read_bytes())
    found: dict[tuple[int, int], list[Measurement]] = {}
    for point in sorted(json.loads(text)["points"], key=lambda p: int(p["order"])):
        values = (point["max_num_seqs"], point["max_num_batched_tokens"])
        records = table_records(point["rows"])
        found.setdefault(values, []).append(measured(*records, schedule_duration_s=14.0))
    shares = [round(m.attainment_frac, 3) for m in found[1024, 8192]]
    assert shares == [0.766, 0.77]
    assert round(found[256, 1024][0].attainment_frac, 3) == 0.98
    assert round(found[16, 512][0].attainment_frac, 3) == 0.294
    default = found[1024, 8192][0]
    assert default.n_requests == 252
    assert default.ttft.p(0.99).value_s is None  # 252 < 299 requests do not cover p99
    assert default.ttft.p(0.99).upper_unbounded
    assert default.ttft.p(0.9).value_s is not None
