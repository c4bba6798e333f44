"""What a running engine reports, out of a real engine's /metrics, against a set."""

from pathlib import Path

from tasks.adapters.prometheus_scrape import parse_metrics
from tasks.domain.engine_metrics import MetricsSnapshot
from tasks.domain.parameters import ParameterValues
from tasks.domain.reported_values import contradictions, reported_values


def test_a_real_engine_reports_its_cache_configuration(shared_dir: Path) -> None:
    text = (shared_dir / "samples" / "vllm-0.32.0-cpu-metrics.txt").read_text()
    found = reported_values(parse_metrics(text, at_s=0.0), max_model_len=2048)
    assert found == ParameterValues.of(
        {
            "block_size": 128,
            "enable_prefix_caching": True,
            "gpu_memory_utilization": 0.92,
            "kv_cache_dtype": "auto",
            "kv_cache_memory_bytes": 2**30,
            "max_model_len": 2048,
            "prefix_caching_hash_algo": "sha256",
        }
    )


def test_only_what_is_asked_and_reported_otherwise_contradicts() -> None:
    asked = ParameterValues.of(
        {"block_size": 16, "enable_prefix_caching": True, "max_num_seqs": 64, "dtype": "auto"}
    )
    told = ParameterValues.of({"block_size": 32, "enable_prefix_caching": True, "dtype": "half"})
    assert contradictions(asked, told) == ("the set says block_size=16, the engine reports 32",)


def test_an_engine_that_reports_nothing_contradicts_nothing() -> None:
    silent = reported_values(MetricsSnapshot(at_s=0.0, error="gone"), max_model_len=None)
    assert silent == ParameterValues()
    assert contradictions(ParameterValues.of({"block_size": 16}), silent) == ()
