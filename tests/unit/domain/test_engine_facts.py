from pathlib import Path

import pytest
import yaml

from tasks.domain.engine_facts import facts_from_log
from tasks.domain.engine_log import log_lines
from tasks.domain.engine_log_phases import last_phase, phase_times


def sample(shared_dir: Path, name: str) -> str:
    return (shared_dir / "samples" / name).read_text(encoding="utf-8")


def case_input(shared_dir: Path, name: str) -> dict[str, str]:
    data = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text(encoding="utf-8"))
    found = data["input"]
    assert isinstance(found, dict)
    return found


def test_the_h200_sample_tells_sizes_seconds_and_backend(shared_dir: Path) -> None:
    facts = facts_from_log(sample(shared_dir, "vllm-0.24.0-h200-server.log"))
    assert (facts.version, facts.dtype, facts.max_model_len) == ("0.24.0", "bfloat16", 8192)
    assert (facts.kv_cache_tokens, facts.kv_gib, facts.engines) == (931424, 113.7, 1)
    assert (facts.weights_gib, facts.weights_load_s) == (13.76, 1.736519)
    assert (facts.torch_compile_s, facts.compile_cache, facts.init_s) == (20.46, "cold", 44.45)
    assert facts.attention_backend == "FLASH_ATTN"
    assert (facts.quantization, facts.quantization_kernel) == (None, None)
    assert (facts.max_num_batched_tokens, facts.enable_prefix_caching) == (8192, True)
    assert ("load_format", "dummy") in facts.non_default_args
    assert facts.warnings == ()


def test_graphs_from_disk_are_a_warm_compile_cache(shared_dir: Path) -> None:
    facts = facts_from_log(sample(shared_dir, "vllm-0.24.0-h200-live-caps.log"))
    assert (facts.compile_cache, facts.torch_compile_s) == ("warm", 4.01)


def test_the_cpu_sample_tells_its_cache_and_its_only_backend(shared_dir: Path) -> None:
    facts = facts_from_log(sample(shared_dir, "vllm-0.32.0-cpu-server.log"))
    assert (facts.version, facts.dtype, facts.max_model_len) == ("0.32.0", "bfloat16", 2048)
    assert (facts.kv_cache_tokens, facts.kv_gib) == (46592, 1.0)
    assert (facts.weights_load_s, facts.init_s, facts.weights_gib) == (2.47, 5.31, None)
    assert (facts.attention_backend, facts.enforce_eager) == ("CPU_ATTN", True)
    assert (facts.torch_compile_s, facts.compile_cache) == (None, None)


def test_the_awq_sample_names_the_kernel_in_use(shared_dir: Path) -> None:
    facts = facts_from_log(sample(shared_dir, "vllm-0.32.0-cpu-awq-missing-kernel.log"))
    assert facts.quantization_kernel == "CPUWNA16LinearKernel"


def test_an_empty_log_knows_nothing() -> None:
    facts = facts_from_log("")
    assert facts.version is None
    assert facts.kv_cache_tokens is None
    assert facts.engines is None
    assert facts.phases == ()


def test_a_changed_backend_is_a_warning_with_what_was_excluded(shared_dir: Path) -> None:
    facts = facts_from_log(case_input(shared_dir, "a-11")["log_warn"])
    (warning,) = facts.warnings
    assert warning.code == "BACKEND_CHANGED_BY_BLOCK_SIZE"
    assert dict(warning.details) == {
        "block_size": "8",
        "excluded": "FLASH_ATTN, FLASHINFER",
        "used": "TRITON_ATTN",
    }
    assert facts.attention_backend == "TRITON_ATTN"


def test_a_fallback_to_unoptimized_kernels_is_told() -> None:
    facts = facts_from_log(
        "WARNING 12-01 02:00:00 [auto_awq.py:327] Layer 'x' is not supported by AWQMarlin. "
        "Falling back to unoptimized AWQ kernels."
    )
    assert facts.slow_kernel


def test_a_log_of_two_starts_is_told() -> None:
    one = "(EngineCore pid=9) INFO 12-01 02:00:00 [k.py:1] GPU KV cache size: 1,600 tokens\n"
    assert [w.code for w in facts_from_log(one * 2).warnings] == ["ENGINE_RESTARTED"]


def test_a_long_compilation_is_parsed_and_is_the_last_phase(shared_dir: Path) -> None:
    log = case_input(shared_dir, "a-10")["log"]
    facts = facts_from_log(log)
    assert (facts.weights_load_s, facts.torch_compile_s) == (71.4, 1846.02)
    assert last_phase(log_lines(log)) == "torch.compile"


def test_phases_are_timed_by_the_logs_own_clock(shared_dir: Path) -> None:
    # weights at 01:12:40; the compile lines at 01:43:25: 30 min 45 s later
    weights, compiling = phase_times(log_lines(case_input(shared_dir, "a-10")["log"]))
    assert (weights.name, weights.at_s, weights.duration_s) == ("weights", 0.0, 1845.0)
    assert (compiling.name, compiling.at_s, compiling.duration_s) == ("torch.compile", 1845.0, None)


def test_the_warning_that_compilation_is_off_is_no_compile_phase(shared_dir: Path) -> None:
    lines = tuple(log_lines(sample(shared_dir, "vllm-0.32.0-cpu-server.log")))
    assert [item.name for item in phase_times(lines)] == [
        "arguments",
        "engine core",
        "weights",
        "kv cache",
        "engine ready",
        "server",
    ]


@pytest.mark.parametrize(
    ("clock", "seconds"), [("12-01 00:00:10", 10.0), ("12-02 00:00:00", 86400.0)]
)
def test_a_start_over_midnight_keeps_counting(clock: str, seconds: float) -> None:
    log = (
        "INFO 12-01 00:00:00 [a.py:1] non-default args: {'a': 1}\n"
        f"INFO {clock} [a.py:1] Loading weights took 1.0 seconds"
    )
    assert phase_times(log_lines(log))[1].at_s == seconds
