"""The verb on real traffic: what the sources call a drift is named, the same is not."""

from pathlib import Path

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.windows import cut
from tasks.drift import compare_traffic


def test_servegen_day_13_alarms_and_names_the_lengths(shared_dir: Path) -> None:
    day_0, day_13 = (
        load_trace(
            shared_dir / "traces" / "servegen_m-large",
            options=TraceOptions(window_start_s=start, window_duration_s=600.0),
        )
        for start in (64_800.0, 1_188_000.0)
    )
    report = compare_traffic(day_0, day_13, seed=0)
    assert {"prompt_tokens", "output_tokens"} <= set(report.drifted_names)
    assert not compare_traffic(day_0, day_0, seed=0).drifted


def test_conversation_against_code_names_the_lengths_and_the_bursts(shared_dir: Path) -> None:
    conversation = load_trace(shared_dir / "traces" / "AzureLLMInferenceTrace_conv.csv")
    code = load_trace(shared_dir / "traces" / "AzureLLMInferenceTrace_code.csv")
    names = compare_traffic(conversation, code, seed=0).drifted_names
    assert {"prompt_tokens", "output_tokens", "burstiness", "mix"} <= set(names)


def test_two_halves_of_the_off_peak_do_not_drift(shared_dir: Path) -> None:
    trace = load_trace(shared_dir / "traces" / "AzureLLMInferenceTrace_conv.csv")
    report = compare_traffic(cut(trace, 2820, 3120), cut(trace, 3120, 3420), seed=0)
    assert report.drifted_names == ()
