"""A foreign result file cannot win with numbers that were never measured."""

import json
from pathlib import Path

import pytest
import yaml

from tasks.adapters.bench_results.vllm_bench import bench_result, read_bench_result
from tasks.domain.errors import MeasurementInvalidError

GOOD: dict[str, object] = {
    "duration": 20.0,
    "completed": 300,
    "failed": 0,
    "total_output_tokens": 4000,
    "request_throughput": 10.0,
    "request_goodput": 9.5,
    "output_throughput": 200.0,
    "mean_ttft_ms": 30.0,
    "median_ttft_ms": 25.0,
    "p99_ttft_ms": 80.0,
    "mean_tpot_ms": 0.0,
    "p99_itl_ms": 12.0,
    "p99_e2el_ms": 900.0,
    "std_ttft_ms": 0.0,
}


def codes(data: dict[str, object]) -> list[str]:
    return [flag.code for flag in bench_result(data, source="r.json").flags]


def test_a_good_file_gives_its_numbers_under_our_names() -> None:
    found = bench_result(GOOD, source="r.json")
    assert found.flags == ()
    assert found.to_metrics() == {
        "bench/completed": 300.0,
        "bench/failed": 0.0,
        "bench/error_rate_frac": 0.0,
        "bench/achieved_req_s": 10.0,
        "bench/output_tok_s": 200.0,
        "bench/goodput_req_s": 9.5,
        "latency/ttft_mean_ms": 30.0,
        "latency/ttft_p50_ms": 25.0,
        "latency/ttft_p99_ms": 80.0,
        "latency/itl_p99_ms": 12.0,
        "latency/e2e_p99_ms": 900.0,
    }  # TPOT 0 of one-token answers is absent, not 0


def test_the_public_case_without_a_success_has_no_latency(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases/d-01.yaml").read_text())
    found = bench_result(case["input"]["result_json"], source="d-01")
    expected = case["expected"]
    assert found.invalid
    assert found.flags[0].code == expected["error_code"]
    assert found.latencies == tuple(expected["latency_metrics_logged"])
    metrics = found.to_metrics()
    for name, value in expected["metrics_logged"].items():
        ours = "error_rate_frac" if name == "error_rate" else name
        assert metrics[f"bench/{ours}"] == value
    assert "bench/goodput_req_s" not in metrics
    assert not [name for name in metrics if name.startswith("latency/")]


def test_successes_with_a_ttft_of_zero_are_not_believed() -> None:
    assert codes({**GOOD, "median_ttft_ms": 0.0}) == ["ZERO_LATENCY"]
    assert codes({**GOOD, "total_output_tokens": 0}) == ["EMPTY_STREAM"]


def test_errors_over_one_percent_are_flagged() -> None:
    assert codes({**GOOD, "failed": 3}) == []  # 3 of 303 = 0.99 %
    assert codes({**GOOD, "failed": 4}) == ["ERROR_RATE"]


def test_a_p99_of_few_requests_is_flagged() -> None:
    assert codes({**GOOD, "completed": 299}) == []
    assert codes({**GOOD, "completed": 298}) == ["TAIL_NOT_COVERED"]


def test_an_old_file_without_failures_counts_the_prompts_that_are_missing() -> None:
    old = {key: value for key, value in GOOD.items() if key != "failed"}
    assert bench_result(old, source="r").failed is None
    assert bench_result(old, source="r").error_rate_frac is None
    assert bench_result({**old, "num_prompts": 350}, source="r").failed == 50


@pytest.mark.parametrize(
    "change",
    [
        {"completed": None},
        {"completed": -1},
        {"completed": 1.5},
        {"completed": "200"},
        {"failed": True},
        {"duration": 0.0},
        {"duration": None},
        {"p99_ttft_ms": float("inf")},
        {"request_throughput": float("nan")},
    ],
)
def test_values_that_cannot_be_are_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(MeasurementInvalidError, match=next(iter(change))) as raised:
        bench_result({**GOOD, **change}, source="r.json")
    assert raised.value.code == "BENCH_RESULT_FORMAT"


def test_a_file_is_read_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(GOOD))
    assert read_bench_result(path).completed == 300
    for text in ("", "[]", json.dumps(GOOD) + "\n" + json.dumps(GOOD)):
        path.write_text(text)
        with pytest.raises(MeasurementInvalidError, match=r"result\.json"):
            read_bench_result(path)
