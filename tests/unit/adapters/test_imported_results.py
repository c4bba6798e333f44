"""Real result files of `vllm bench serve` 0.32.0 and guidellm 0.8.1, good ones and dead ones.

All were written against one server that streams 16 tokens 10 ms apart, 20 requests at 20 req/s.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tasks.adapters.bench_results.guidellm import guidellm_results
from tasks.adapters.bench_results.vllm_bench import BenchResult
from tasks.domain.errors import MeasurementInvalidError
from tasks.import_results import import_results
from tests.conftest import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden" / "bench_results"


def only(name: str) -> BenchResult:
    (found,) = import_results(GOLDEN / f"{name}.json")
    return found


def report(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return loaded


def codes(result: BenchResult) -> list[str]:
    return [flag.code for flag in result.flags]


@pytest.mark.parametrize("name", ["vllm-0.32.0-good", "guidellm-0.8.1-good"])
def test_both_tools_give_the_same_server_the_same_figures(name: str) -> None:
    found = only(name)
    assert (found.completed, found.failed) == (20, 0)
    assert found.goodput_req_s is None  # no SLO was given to the tool
    latencies = dict(found.latencies)
    assert latencies["tpot_p50_ms"] == pytest.approx(10.0, abs=0.1)
    assert latencies["e2e_p50_ms"] == pytest.approx(latencies["ttft_p50_ms"] + 150, abs=1)
    assert found.output_tok_s == pytest.approx(320 / found.duration_s)


def test_guidellms_time_per_token_with_the_first_one_is_not_taken_for_tpot() -> None:
    found = only("guidellm-0.8.1-good")
    theirs = report("guidellm-0.8.1-good")["benchmarks"][0]["metrics"]["time_per_output_token_ms"]
    assert theirs["successful"]["percentiles"]["p50"] > 10.3
    assert dict(found.latencies)["tpot_p50_ms"] < 10.1
    assert codes(found) == ["TAIL_NOT_COVERED", "TPOT_DEFINITION"]


@pytest.mark.parametrize("name", ["vllm-0.32.0-no-success", "guidellm-0.8.1-no-success"])
def test_a_run_full_of_zeros_gives_no_latency_and_is_invalid(name: str) -> None:
    found = only(name)
    assert (found.completed, found.failed, found.latencies) == (0, 20, ())
    assert found.invalid
    assert codes(found) == ["NO_SUCCESSFUL_REQUESTS", "ERROR_RATE"]
    assert (found.request_req_s, found.output_tok_s) == (None, None)


def test_answers_of_one_token_have_no_tpot_and_keep_their_ttft() -> None:
    found = only("vllm-0.32.0-one-token")
    names = [name for name, _ in found.latencies]
    assert not [name for name in names if name.startswith(("tpot", "itl"))]
    assert "ttft_p50_ms" in names
    assert not found.invalid


def test_guidellms_zero_for_a_time_that_never_came_is_not_believed() -> None:
    data = report("guidellm-0.8.1-good")
    data["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["min"] = 0.0
    data["benchmarks"][0]["metrics"]["request_totals"]["incomplete"] = 7
    (found,) = guidellm_results(data, source="r.json")
    assert found.invalid
    assert "ZERO_LATENCY" in codes(found)
    assert "7 requests were cut off" in found.flags[-1].sentence


def test_a_report_without_a_benchmark_is_refused() -> None:
    data = report("guidellm-0.8.1-good") | {"benchmarks": []}
    with pytest.raises(MeasurementInvalidError, match="holds no benchmark") as raised:
        guidellm_results(data, source="r.json")
    assert raised.value.code == "BENCH_RESULT_FORMAT"


def test_the_command_prints_the_traps_and_exits_1_where_one_is_invalid() -> None:
    good, dead = (str(GOLDEN / f"vllm-0.32.0-{name}.json") for name in ("good", "no-success"))
    result = CliRunner().invoke(app, ["bench-import", good])
    assert result.exit_code == 0, result.output
    assert "TAIL_NOT_COVERED" in result.stdout
    both = CliRunner().invoke(app, ["bench-import", good, dead, "--json"])
    assert both.exit_code == 1
    metrics = json.loads(both.stdout)["metrics"]
    assert metrics[0]["latency/tpot_p50_ms"] == pytest.approx(10.0, abs=0.1)
    assert not [name for name in metrics[1] if name.startswith("latency/")]


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeasurementInvalidError, match=r"absent\.json"):
        import_results(tmp_path / "absent.json")
