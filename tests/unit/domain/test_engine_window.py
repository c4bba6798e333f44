"""Windows of /metrics: names of three generations, restarts, absent metrics, several engines."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.adapters.prometheus_scrape import parse_metrics
from tasks.domain.engine_metrics import MetricSample, MetricsSnapshot, stale_metrics
from tasks.domain.engine_window import EngineWindow, engine_window, engine_windows


def case(shared_dir: Path, name: str) -> dict[str, dict[str, str]]:
    loaded: dict[str, dict[str, str]] = yaml.safe_load(
        (shared_dir / f"cases/{name}.yaml").read_text()
    )
    return loaded


def snapshot(at_s: float, values: dict[str, float], *, engine: str = "0") -> MetricsSnapshot:
    labels = (("engine", engine), ("model_name", "m"))
    return MetricsSnapshot(
        at_s=at_s,
        samples=tuple(
            MetricSample(name=f"vllm:{name}", labels=labels, value=value)
            for name, value in values.items()
        ),
    )


def joined(*snapshots: MetricsSnapshot) -> MetricsSnapshot:
    rows = tuple(sample for snap in snapshots for sample in snap.samples)
    return MetricsSnapshot(at_s=snapshots[0].at_s, samples=rows)


def zeroed(text: str) -> str:
    """The same exposition with every value 0: a baseline taken before any request."""
    return "\n".join(line.rsplit(" ", 1)[0] + " 0.0" for line in text.strip().splitlines())


def codes(window: EngineWindow) -> list[str]:
    return [code for code, _ in window.notes]


@pytest.mark.parametrize("scrape", ["scrape_v0", "scrape_v1_0_24"])
def test_old_and_new_names_give_the_same_numbers(shared_dir: Path, scrape: str) -> None:
    text = case(shared_dir, "b-05")["input"][scrape]
    window = engine_window((parse_metrics(zeroed(text), at_s=0), parse_metrics(text, at_s=10)))
    assert window.kv_usage_max_frac == pytest.approx(0.42)
    assert window.prefix_hit_frac == pytest.approx(0.25)  # 1000 of 4000 tokens, or V0's gauge
    assert window.itl_mean_s == pytest.approx(0.030)  # 30 s over 1000 tokens


def test_the_per_request_mean_is_not_the_per_token_mean(shared_dir: Path) -> None:
    texts = case(shared_dir, "b-05")["input"]
    new, old = texts["scrape_v1_0_24"], texts["scrape_v0"]
    v1 = engine_window((parse_metrics(zeroed(new), at_s=0), parse_metrics(new, at_s=10)))
    v0 = engine_window((parse_metrics(zeroed(old), at_s=0), parse_metrics(old, at_s=10)))
    assert v1.tpot_mean_s == pytest.approx(0.028)  # 2.8 s over 100 requests
    assert v0.tpot_mean_s is None
    assert (v0.swapped_max, v1.swapped_max) == (0.0, None)
    assert "HIT_RATE_NOT_WINDOWED" in codes(v0)
    assert "HIT_RATE_NOT_WINDOWED" not in codes(v1)


def test_an_absent_metric_is_reported_once_with_the_names_tried_and_stays_none(
    shared_dir: Path,
) -> None:
    text = case(shared_dir, "b-05")["input"]["scrape_v1_0_24"]
    window = engine_window(tuple(parse_metrics(text, at_s=at) for at in range(5)))
    said = [sentence for code, sentence in window.notes if code == "MISSING_METRIC"]
    assert window.preemptions is None
    assert [s for s in said if s.startswith("preemptions ")] == [
        "preemptions is not exposed; tried vllm:num_preemptions_total"
    ]
    assert not [s for s in said if s.startswith("kv_usage ")]


def test_a_renamed_metric_exposed_under_both_names_is_counted_once() -> None:
    both = {"prefix_cache_queries_total": 100.0, "gpu_prefix_cache_queries_total": 100.0}
    none = dict.fromkeys(both, 0.0)
    window = engine_window((snapshot(0, none), snapshot(1, both)))
    assert window.prefix_queries_tokens == 100


def test_a_real_exposition_is_reduced_to_its_sums_and_means(shared_dir: Path) -> None:
    samples = shared_dir / "samples"
    last = parse_metrics((samples / "vllm-0.32.0-cpu-metrics-after-load.txt").read_text(), at_s=100)
    zero = MetricsSnapshot(
        at_s=-1,
        samples=tuple(
            MetricSample(name=s.name, labels=s.labels, value=0.0)
            for s in last.samples
            if s.name.startswith("vllm:")
        ),
    )
    window = engine_window((zero, last))
    assert window.generation_tokens == 1536
    assert window.prompt_tokens == 5797
    assert window.requests_finished == 434  # all reasons together
    assert window.preemptions == 0
    assert window.prefix_hit_frac == 0
    assert window.iteration_tokens_mean == pytest.approx(7333 / 470)
    assert window.tpot_mean_s == pytest.approx(6.471965412750837 / 434)
    assert "MISSING_METRIC" not in codes(window)


def test_expositions_of_two_servers_are_not_one_window(shared_dir: Path) -> None:
    samples = shared_dir / "samples"
    first = parse_metrics((samples / "vllm-0.32.0-cpu-metrics.txt").read_text(), at_s=0)
    last = parse_metrics((samples / "vllm-0.32.0-cpu-metrics-after-load.txt").read_text(), at_s=100)
    window = engine_window((first, last))
    assert window.restarted
    assert window.generation_tokens is None
    assert "process_start_time_seconds changed" in dict(window.notes)["COUNTER_RESET"]


def test_no_query_in_the_window_gives_no_hit_rate() -> None:
    values = {"prefix_cache_queries_total": 638.0, "prefix_cache_hits_total": 5.0}
    window = engine_window((snapshot(0, values), snapshot(10, values)))
    assert window.prefix_queries_tokens == 0
    assert window.prefix_hit_frac is None


def test_a_v0_engine_without_prefix_caching_has_no_hit_rate() -> None:
    off = snapshot(0, {"gpu_prefix_cache_hit_rate": -1.0})
    assert engine_window((off,)).prefix_hit_frac is None


def test_a_counter_that_falls_makes_every_delta_unknown(shared_dir: Path) -> None:
    loaded = yaml.safe_load((shared_dir / "cases/b-07.yaml").read_text())
    ends = loaded["input"]["window"]
    window = engine_window((snapshot(0, ends["before"]), snapshot(60, ends["after"])))
    assert window.generation_tokens is None
    assert window.restarted
    assert codes(window).count("COUNTER_RESET") == 1


def test_a_restart_is_seen_although_the_counter_overtook_itself_by_the_end() -> None:
    grown = [5000.0, 300.0, 9000.0]
    window = engine_window(
        tuple(snapshot(at, {"generation_tokens_total": n}) for at, n in enumerate(grown))
    )
    assert window.restarted
    assert window.generation_tokens is None


def test_a_changed_start_time_is_a_restart_although_no_counter_fell() -> None:
    def started(at_s: float, when: float) -> MetricsSnapshot:
        start = MetricSample(name="process_start_time_seconds", labels=(), value=when)
        return MetricsSnapshot(
            at_s=at_s, samples=(start, *snapshot(at_s, {"generation_tokens_total": at_s}).samples)
        )

    assert engine_window((started(0, 100.0), started(5, 104.0))).restarted
    assert not engine_window((started(0, 100.0), started(5, 100.0))).restarted


def test_a_failed_last_scrape_shortens_the_window_and_never_counts_as_zero() -> None:
    lost = MetricsSnapshot(at_s=30, error="ConnectError: refused")
    tokens = "generation_tokens_total"
    window = engine_window((snapshot(0, {tokens: 5000}), snapshot(20, {tokens: 5600}), lost))
    assert window.generation_tokens == 600
    assert window.duration_s == 20
    assert {"SCRAPE_ERRORS", "WINDOW_CUT"} <= set(codes(window))


def test_nothing_scraped_is_no_window_of_zeros() -> None:
    window = engine_window((MetricsSnapshot(at_s=0, error="HTTP 503"),))
    assert (window.snapshots, window.generation_tokens, window.running_max) == (0, None, None)
    assert codes(window) == ["NO_SNAPSHOTS"]


def test_counters_before_the_first_request_are_stale(shared_dir: Path) -> None:
    first = yaml.safe_load((shared_dir / "cases/b-07.yaml").read_text())["input"][
        "first_scrape_after_start"
    ]
    tokens = {"generation_tokens_total": first["generation_tokens_total"]}
    note = stale_metrics(snapshot(0, tokens), requests_sent=first["requests_sent_by_us"])
    assert note is not None
    assert note[0] == "STALE_METRICS"
    assert "48211" in note[1]
    assert stale_metrics(snapshot(0, tokens), requests_sent=3) is None
    assert stale_metrics(snapshot(0, {"generation_tokens_total": 0}), requests_sent=0) is None


def test_several_engines_are_summed_or_looked_at_one_by_one() -> None:
    def both(at_s: float, left: float, right: float) -> MetricsSnapshot:
        names = ("generation_tokens_total", "num_requests_running", "kv_cache_usage_perc")
        return joined(
            snapshot(at_s, dict(zip(names, (left, 4, 0.2), strict=True)), engine="0"),
            snapshot(at_s, dict(zip(names, (right, 6, 0.8), strict=True)), engine="1"),
        )

    window = engine_window((both(0, 100, 10), both(10, 160, 50)))
    assert (window.engines, window.generation_tokens) == (2, 100)  # 60 + 40
    assert window.running_max == 10
    assert window.kv_usage_mean_frac == pytest.approx(0.5)  # mean of the engines
    assert window.kv_usage_max_frac == pytest.approx(0.8)  # the fullest
    left, right = engine_windows((both(0, 100, 10), both(10, 160, 50)))
    assert (left.generation_tokens, right.generation_tokens) == (60, 40)
    assert (left.engine, right.running_max) == ("0", 6)


def test_levels_are_means_and_a_95th_percentile_over_the_scrapes() -> None:
    usage = [i / 100 for i in range(101)]
    window = engine_window(
        tuple(snapshot(at, {"kv_cache_usage_perc": u}) for at, u in enumerate(usage))
    )
    assert window.kv_usage_mean_frac == pytest.approx(0.5)
    assert window.kv_usage_p95_frac == pytest.approx(0.95)


def test_a_counter_born_at_its_first_use_counts_from_zero() -> None:
    first = snapshot(0, {"generation_tokens_total": 0})
    last = snapshot(9, {"generation_tokens_total": 8, "request_success_total": 2})
    assert engine_window((first, last)).requests_finished == 2


@given(st.lists(st.integers(min_value=0, max_value=10_000), min_size=2, max_size=30))
def test_a_delta_is_the_growth_or_unknown_and_never_negative(values: list[int]) -> None:
    window = engine_window(
        tuple(snapshot(at, {"generation_tokens_total": n}) for at, n in enumerate(values))
    )
    if values == sorted(values):
        assert window.generation_tokens == values[-1] - values[0]
    else:
        assert window.generation_tokens is None
