"""The verb: what is sampled around a load, and what the profile says of it."""

import itertools
from pathlib import Path

from tasks.adapters.prometheus_scrape import read_snapshots
from tasks.domain.endpoint import Endpoint
from tasks.profiling import TraceWindow, profile_engine
from tests.fakes.canned_server import CannedServer

METRICS = (
    'vllm:generation_tokens_total{{engine="0"}} {}\nvllm:num_requests_running{{engine="0"}} 2\n'
)


def test_a_load_is_profiled_and_its_result_returned(tmp_path: Path) -> None:
    tokens = itertools.count(0, 120)
    with CannedServer({"GET /metrics": lambda: (200, METRICS.format(next(tokens)))}) as server:
        endpoint = Endpoint(url=server.url, model="m", owned=False)
        result, profile = profile_engine(
            endpoint, lambda: "done", period_s=60, artifacts_dir=tmp_path, requests_before=0
        )
    assert result == "done"
    assert profile.window is not None
    assert profile.window.generation_tokens == 120
    assert profile.device is not None
    assert profile.warnings == ()
    assert {code for code, _ in profile.missing} == {"MISSING_METRIC"}
    assert (profile.kernels, profile.kernels_missing) == (None, None)
    assert len(read_snapshots(tmp_path / "metrics.jsonl.gz")) == 2


def test_the_torch_window_comes_after_the_measured_load(tmp_path: Path) -> None:
    order: list[str] = []
    text = METRICS.format(5)

    def metrics() -> tuple[int, str]:
        order.append("metrics")
        return 200, text

    def start() -> tuple[int, str]:
        order.append("start_profile")
        return 404, "Not Found"

    with CannedServer({"GET /metrics": metrics, "POST /start_profile": start}) as server:
        _, profile = profile_engine(
            Endpoint(url=server.url, model="m", owned=False),
            lambda: order.append("load"),
            period_s=60,
            trace=TraceWindow(seconds=0.0, trace_dir=tmp_path, load=lambda: None),
            requests_before=0,
        )
    assert order == ["metrics", "load", "metrics", "start_profile"]
    assert profile.kernels_missing is not None
    assert profile.kernels_missing.code == "PROFILER_NOT_ENABLED"
    assert [code for code, _ in profile.warnings] == ["STALE_METRICS"]  # 5 tokens before ours


def test_an_engine_without_metrics_still_gives_a_profile_of_the_host() -> None:
    with CannedServer({}) as server:
        _, profile = profile_engine(
            Endpoint(url=server.url, model="m", owned=False), lambda: None, period_s=60
        )
    assert profile.window is None
    assert profile.device is not None
    assert [code for code, _ in profile.missing] == ["NO_SNAPSHOTS"]
