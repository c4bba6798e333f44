"""Scraping: what is kept, what a failure becomes, and what survives a kill."""

import itertools
import time
from pathlib import Path

from tasks.adapters.prometheus_scrape import MetricsScraper, parse_metrics, read_snapshots, scrape
from tasks.domain.engine_window import engine_window
from tests.fakes.canned_server import CannedServer

TEXT = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} TOKENS
vllm:generation_tokens_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 0.5
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN
# TYPE python_info gauge
python_info{version="3.12"} 1.0
"""


def text(tokens: int = 7) -> str:
    return TEXT.replace("TOKENS", str(tokens))


def test_only_finite_vllm_samples_without_buckets_are_kept() -> None:
    names = [sample.name for sample in parse_metrics(text(), at_s=1.0).samples]
    assert names == [
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_to_first_token_seconds_sum",
    ]


def test_foreign_or_broken_text_is_an_error_and_not_zeros() -> None:
    foreign = parse_metrics("python_info 1.0\n", at_s=0)
    html = parse_metrics("<html>{bad gateway", at_s=0)
    cut = parse_metrics('vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_wai', at_s=0)
    assert foreign.error == html.error == "the reply holds no vllm: metric"
    assert cut.error is not None
    assert "no Prometheus text" in cut.error
    assert (foreign.ok, html.ok, cut.ok, cut.samples) == (False, False, False, ())


def test_a_scrape_reads_the_servers_metrics() -> None:
    with CannedServer({"GET /metrics": lambda: (200, text(42))}) as server:
        snapshot = scrape(server.url + "/")
    assert {s.name: s.value for s in snapshot.samples}["vllm:generation_tokens_total"] == 42


def test_an_unreachable_or_failing_server_gives_an_error_snapshot() -> None:
    with CannedServer({"GET /metrics": lambda: (503, "no")}) as server:
        assert "503" in (scrape(server.url).error or "")
        gone = server.url
    assert scrape(gone, timeout_s=2).error is not None
    assert scrape("http://127.0.0.1:notaport").error is not None


def test_a_scraper_brackets_its_block_and_writes_what_it_saw(tmp_path: Path) -> None:
    tokens = itertools.count(100, 50)
    path = tmp_path / "deep" / "metrics.jsonl.gz"
    with (
        CannedServer({"GET /metrics": lambda: (200, text(next(tokens)))}) as server,
        MetricsScraper(server.url, period_s=60.0, path=path) as scraper,
    ):
        assert len(scraper.snapshots) == 1
    assert engine_window(scraper.snapshots).generation_tokens == 50
    assert read_snapshots(path) == scraper.snapshots
    assert scraper.notes == ()


def test_a_scrape_that_fails_between_is_recorded_and_the_window_goes_on() -> None:
    answers = iter([(200, text(100)), (500, "boom")])
    with (
        CannedServer({"GET /metrics": lambda: next(answers, (200, text(300)))}) as server,
        MetricsScraper(server.url, period_s=0.01) as scraper,
    ):
        while len(scraper.snapshots) < 4:
            time.sleep(0.005)
    window = engine_window(scraper.snapshots)
    assert window.generation_tokens == 200
    assert "HTTP 500" in dict(window.notes)["SCRAPE_ERRORS"]


def test_a_file_cut_by_a_kill_gives_the_whole_lines_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.gz"
    with CannedServer({"GET /metrics": lambda: (200, text(5))}) as server:
        with MetricsScraper(server.url, period_s=60, path=path) as scraper:
            killed = tmp_path / "killed.jsonl.gz"
            killed.write_bytes(path.read_bytes())  # what a SIGKILL here would leave
        whole = path.read_bytes()
    assert read_snapshots(killed) == scraper.snapshots[:1]
    path.write_bytes(whole[:-30])
    assert read_snapshots(path) == scraper.snapshots[: len(read_snapshots(path))]


def test_a_disk_that_refuses_does_not_stop_the_scraping(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with (
        CannedServer({"GET /metrics": lambda: (200, text())}) as server,
        MetricsScraper(server.url, period_s=60, path=blocker / "m.gz") as scraper,
    ):
        pass
    assert [code for code, _ in scraper.notes] == ["METRICS_NOT_WRITTEN"]
    assert len(scraper.snapshots) == 2
