"""The published traces load to the numbers that their sources state."""

from pathlib import Path

import numpy as np
import pytest

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace
from tasks.domain.trace_profile import profile_trace


def servegen(shared_dir: Path, start_s: float, duration_s: float, seed: int = 0) -> Trace:
    options = TraceOptions(window_start_s=start_s, window_duration_s=duration_s, seed=seed)
    return load_trace(shared_dir / "traces" / "servegen_m-large", options=options)


def test_azure_conversation_has_the_published_shape(shared_dir: Path) -> None:
    trace = load_trace(shared_dir / "traces" / "AzureLLMInferenceTrace_conv.csv")
    profile = profile_trace(trace)
    assert profile.requests == 19_366
    assert profile.duration_s == pytest.approx(3_501.7, abs=0.05)
    assert profile.mean_rate_req_s == pytest.approx(5.53, abs=0.005)
    assert profile.gap_cv == pytest.approx(1.09, abs=0.005)
    assert profile.prompt.mean_tokens == pytest.approx(1_154.7, abs=0.05)
    assert (profile.prompt.p50_tokens, profile.prompt.max_tokens) == (1_020, 14_050)
    assert (profile.output.p50_tokens, profile.output.max_tokens) == (129, 1_000)
    assert profile.peak_req_per_min is not None
    assert 480 <= profile.peak_req_per_min <= 507


def test_azure_code_is_bursty(shared_dir: Path) -> None:
    profile = profile_trace(load_trace(shared_dir / "traces" / "AzureLLMInferenceTrace_code.csv"))
    assert profile.requests == 8_819
    assert profile.gap_cv == pytest.approx(13.15, abs=0.005)
    assert profile.prefix_reuse_frac is None
    assert profile.sessions is None


@pytest.mark.parametrize(("part", "rows"), [("first", 3_658), ("last", 4_423)])
def test_mooncake_conversation_is_spread_over_its_twenty_minutes(
    shared_dir: Path, part: str, rows: int
) -> None:
    trace = load_trace(shared_dir / "traces" / f"mooncake_conversation_{part}20min.jsonl")
    assert len(trace) == rows
    assert 1_190 < trace.duration_s <= 1_203
    assert trace.arrival_s[0] == 0.0
    assert "QUANTISED_STAMPS_SPREAD" in dict(trace.notes.warnings)
    assert trace.prefix_block_tokens == 512


def test_mooncake_synthetic_keeps_its_own_stamps(shared_dir: Path) -> None:
    trace = load_trace(shared_dir / "traces" / "mooncake_synthetic_full.jsonl")
    assert trace.duration_s == pytest.approx(1_022.025)
    assert "QUANTISED_STAMPS_SPREAD" not in dict(trace.notes.warnings)


def test_servegen_draws_the_rate_and_lengths_of_the_window(shared_dir: Path) -> None:
    trace = servegen(shared_dir, 64_800, 600)
    # Sum of the ten clients' rates in the row of 64,800 s: 43.2 req/s.
    assert len(trace) / 600 == pytest.approx(43.2, rel=0.1)
    assert trace.notes.format == "servegen"
    assert "ARRIVALS_DRAWN" in dict(trace.notes.warnings)
    again, other = servegen(shared_dir, 64_800, 600), servegen(shared_dir, 64_800, 600, seed=1)
    assert np.array_equal(trace.arrival_s, again.arrival_s)
    assert trace.sha256 == again.sha256 != other.sha256


def test_servegen_without_a_window_or_with_an_unknown_one_says_which_exist(
    shared_dir: Path,
) -> None:
    with pytest.raises(TraceError, match="64800, 108000, 1188000"):
        load_trace(shared_dir / "traces" / "servegen_m-large")
    with pytest.raises(TraceError, match="64800, 108000, 1188000"):
        servegen(shared_dir, 500_000, 600)


def test_a_broken_servegen_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "chunk-1-trace.csv").write_text("0,5,1,Gamma,1,0.2\n600,5,1,Gamma,1,0.2\n")
    dataset = tmp_path / "chunk-1-dataset.json"
    dataset.write_text('{"0": {"input_tokens": "{10: 1.0}", "output_tokens": "{5: 1.0}"}}')
    options = TraceOptions(window_start_s=0, window_duration_s=100)
    trace = load_trace(tmp_path, options=options)
    assert (set(trace.prompt_tokens.tolist()), set(trace.output_tokens.tolist())) == ({10}, {5})
    dataset.write_text('{"0": {"input_tokens": "{10: "}}')
    with pytest.raises(TraceError, match=r"chunk-1-dataset\.json"):
        load_trace(tmp_path, options=options)
    (tmp_path / "chunk-1-trace.csv").write_text("0,fast\n")
    with pytest.raises(TraceError, match=r"chunk-1-trace\.csv line 1"):
        load_trace(tmp_path, options=options)


def test_a_file_out_of_a_servegen_folder_points_to_the_folder(shared_dir: Path) -> None:
    folder = shared_dir / "traces" / "servegen_m-large"
    with pytest.raises(TraceError, match="name the folder itself"):
        load_trace(next(iter(sorted(folder.glob("chunk-*-trace.csv")))))
