from pathlib import Path

import pytest
import yaml

from tasks.domain.engine_failures import EngineFailure, failure_from_log
from tasks.domain.engine_log_causes import MAX_QUOTE, causes


def case_input(shared_dir: Path, name: str) -> dict[str, str]:
    data = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text(encoding="utf-8"))
    found = data["input"]
    assert isinstance(found, dict)
    return found


def sample(shared_dir: Path, name: str) -> str:
    return (shared_dir / "samples" / name).read_text(encoding="utf-8")


def details(failure: EngineFailure) -> dict[str, str]:
    return dict(failure.details)


def test_a_small_kv_cache_is_told_with_all_its_numbers(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-01")["log_v1"], exit_code=1)
    assert failure.code == "KV_CACHE_TOO_SMALL"
    assert details(failure) == {
        "max_model_len": "32768",
        "needed_gib": "4.5",
        "available_gib": "1.97",
        "estimated_max_model_len": "14336",
    }
    assert failure.infeasible
    assert not failure.retry
    assert failure.root_cause.startswith("ValueError: To serve at least one request")
    assert "Engine core initialization failed" not in failure.message
    assert "at most 14336" in failure.advice
    assert "gpu_memory_utilization" in failure.advice


def test_a_small_kv_cache_without_an_estimate_advises_no_number(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-01")["log_v1_no_estimate"], exit_code=1)
    assert failure.code == "KV_CACHE_TOO_SMALL"
    assert failure.detail("estimated_max_model_len") is None
    assert failure.detail("available_gib") == "0.01"
    assert failure.detail("needed_gib") == "2.25"
    assert "at most" not in failure.advice
    assert "{" not in failure.advice


def test_the_v0_wording_gives_its_token_count_as_estimate(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-01")["log_v0"], exit_code=1)
    assert failure.code == "KV_CACHE_TOO_SMALL"
    assert details(failure) == {
        "max_model_len": "4096",
        "kv_cache_tokens": "2960",
        "estimated_max_model_len": "2960",
    }


def test_no_memory_at_all_is_a_class_of_its_own(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-01")["log_no_memory"], exit_code=1)
    assert (failure.code, failure.infeasible) == ("NO_MEMORY_FOR_KV_CACHE", True)


def test_ray_and_container_prefixes_do_not_hide_the_cause(shared_dir: Path) -> None:
    bare = case_input(shared_dir, "a-01")["log_v0"].strip()
    prefixed = (
        "2025-12-01T03:14:07.123Z \x1b[36m(RayWorkerWrapper pid=77, ip=10.0.0.3)\x1b[0m "
        f"ERROR 12-01 03:14:07 [worker.py:12] {bare}\n"
    )
    failure = failure_from_log(prefixed, exit_code=1)
    assert failure == failure_from_log(bare, exit_code=1)
    assert failure.root_cause == bare


def test_an_argument_that_vllm_does_not_know_is_named(shared_dir: Path) -> None:
    failure = failure_from_log(str(case_input(shared_dir, "a-04")["stderr"]), exit_code=2)
    assert failure.code == "UNKNOWN_ENGINE_ARGUMENT"
    assert failure.detail("argument") == "swap_space"
    assert not failure.retry
    assert failure.root_cause == "unrecognized arguments: --swap-space 16"


@pytest.mark.parametrize(
    "text",
    [
        "The input size is not aligned with the quantized weight shape. This can be caused by too "
        "large tensor parallel size.",
        "The output size is not aligned with the quantized weight shape. This can be caused by "
        "too large tensor parallel size.",
        "Weight input_size_per_partition = 14784 is not divisible by group_size = 128. Consider "
        "reducing tensor_parallel_size or running with --quantization gptq.",
    ],
)
def test_every_wording_of_an_indivisible_shard_is_one_class(text: str) -> None:
    log = f"(Worker_TP1 pid=9) ERROR 12-01 01:00:00 [core.py:1] ValueError: {text}"
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.infeasible) == ("QUANT_SHAPE_NOT_DIVISIBLE", True)


def test_marlins_wording_names_the_share_and_the_group() -> None:
    failure = failure_from_log(
        "ValueError: Weight input_size_per_partition = 14784 is not divisible by group_size = 128.",
        exit_code=1,
    )
    assert failure.detail("size") == "14784"
    assert failure.detail("divisor") == "128"


def test_a_refused_dtype_is_told_without_pydantics_tail(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-06")["stderr_2"], exit_code=1)
    assert failure.code == "DTYPE_NOT_SUPPORTED"
    assert details(failure) == {
        "quantization": "awq",
        "dtype": "bfloat16",
        "supported": "float16",
    }
    assert "[type=" not in failure.message
    assert "upgrade vLLM" in failure.advice


def test_a_dtype_that_the_model_refuses_is_another_class() -> None:
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, The model type 'gemma3' does not support float16. Reason: Numerical "
        "instability. Please use bfloat16 or float32 instead. [type=value_error, input_value=A]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error\n"
    )
    failure = failure_from_log(log, exit_code=1)
    assert failure.code == "DTYPE_NOT_SUPPORTED_BY_MODEL"
    assert details(failure) == {"model_type": "gemma3", "dtype": "float16"}
    assert failure.root_cause.startswith("The model type 'gemma3'")


def test_an_address_in_use_is_a_busy_port(shared_dir: Path) -> None:
    failure = failure_from_log(str(case_input(shared_dir, "a-07")["older_log"]), exit_code=1)
    assert (failure.code, failure.retry, failure.infeasible) == ("PORT_BUSY", True, False)


def test_no_attention_backend_is_infeasible(shared_dir: Path) -> None:
    failure = failure_from_log(case_input(shared_dir, "a-11")["log_error"], exit_code=1)
    assert (failure.code, failure.infeasible) == ("NO_ATTENTION_BACKEND", True)
    assert failure.detail("reasons") == "FLASH_ATTN: [block_size not supported]"


@pytest.mark.parametrize(
    ("text", "detail", "value"),
    [
        (
            "max_num_batched_tokens (8192) is smaller than max_model_len (131072). This effectively"
            " limits the maximum sequence length",
            "other",
            "max_model_len",
        ),
        (
            "max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (1024).",
            "other_value",
            "1024",
        ),
        (
            "Total number of attention heads (64) must be divisible by tensor parallel size (3).",
            "tensor_parallel_size",
            "3",
        ),
    ],
)
def test_values_that_contradict_each_other_are_bad_values(
    text: str, detail: str, value: str
) -> None:
    log = f"  Value error, {text} [type=value_error, input_value=ArgsKwargs(()), input_type=A]"
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.infeasible) == ("BAD_VALUE", True)
    assert failure.detail(detail) == value


def test_an_argument_of_a_wrong_type_is_a_bad_value() -> None:
    log = "usage: vllm serve [options]\nvllm serve: error: argument --max-num-seqs: invalid x: 'a'"
    failure = failure_from_log(log, exit_code=2)
    assert failure.code == "BAD_VALUE"
    assert failure.detail("argument") == "max_num_seqs"


def test_a_gpu_that_others_use_may_be_tried_again() -> None:
    log = (
        "(EngineCore pid=3) ERROR 12-01 01:00:00 [core.py:1] ValueError: Free memory on device "
        "cuda:0 (20.5/139.8 GiB) on startup is less than desired GPU memory utilization "
        "(0.92, 128.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
        "processes."
    )
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.retry, failure.infeasible) == ("GPU_BUSY", True, False)
    assert failure.detail("free_gib") == "20.5"
    assert failure.detail("asked_gib") == "128.6"


@pytest.mark.parametrize(
    ("served", "when"), [("INFO:     Application startup complete.\n", "load"), ("", "start")]
)
def test_memory_that_runs_out_is_told_by_when_it_did(served: str, when: str) -> None:
    log = served + (
        "(EngineCore pid=3) ERROR 12-01 01:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 2.00 GiB."
    )
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.detail("when")) == ("CUDA_OOM", when)


def test_the_h200_sample_names_the_missing_module(shared_dir: Path) -> None:
    failure = failure_from_log(
        sample(shared_dir, "vllm-0.24.0-h200-start-failure.log"), exit_code=1
    )
    assert failure.code == "MISSING_MODULE"
    assert failure.detail("module") == "flashinfer"
    assert failure.root_cause == "ModuleNotFoundError: No module named 'flashinfer'"


def test_the_block_size_sample_names_size_and_backend(shared_dir: Path) -> None:
    failure = failure_from_log(
        sample(shared_dir, "vllm-0.32.0-cpu-block-size-fail.log"), exit_code=1
    )
    assert failure.code == "BLOCK_SIZE_NOT_SUPPORTED"
    assert details(failure) == {"block_size": "16", "backends": "CPU_ATTN: [MultipleOf(32)]"}
    assert not failure.retry


def test_the_awq_sample_names_the_kernel_that_is_missing(shared_dir: Path) -> None:
    failure = failure_from_log(
        sample(shared_dir, "vllm-0.32.0-cpu-awq-missing-kernel.log"), exit_code=0
    )
    assert (failure.code, failure.infeasible) == ("MISSING_KERNEL", True)
    assert failure.detail("kernel") == "cpu_gemm_wna16"


@pytest.mark.parametrize("name", ["vllm-0.32.0-cpu-server.log", "vllm-0.24.0-h200-server.log"])
def test_a_healthy_log_of_a_killed_engine_blames_the_signal_only(
    shared_dir: Path, name: str
) -> None:
    failure = failure_from_log(sample(shared_dir, name), exit_code=-9)
    assert failure.code == "ENGINE_DIED"
    assert failure.retry
    assert "SIGKILL" in failure.root_cause
    assert failure.detail("exit_code") == "-9"


def test_an_unknown_exception_is_quoted_and_may_be_tried_again() -> None:
    log = (
        "(Worker pid=5) ERROR 12-01 01:00:00 [w.py:1] RuntimeError: the dragon woke\n"
        "(EngineCore pid=4) ERROR 12-01 01:00:00 [c.py:1] RuntimeError: Worker failed with error "
        "'the dragon woke', please check the stack trace above for the root cause\n"
        "(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above."
    )
    failure = failure_from_log(log, exit_code=1)
    assert (failure.code, failure.retry) == ("ENGINE_DIED", True)
    assert failure.root_cause.startswith("RuntimeError: the dragon woke")


def test_only_wrappers_give_the_inner_text_of_the_wrapper() -> None:
    log = (
        "(EngineCore pid=4) ERROR 12-01 01:00:00 [c.py:1] RuntimeError: Worker failed with error "
        "'lost', please check the stack trace above for the root cause"
    )
    failure = failure_from_log(log, exit_code=1)
    assert failure.root_cause.startswith("Worker failed with error 'lost'")
    assert "stack trace" not in failure.root_cause


def test_a_warning_that_mentions_an_exception_is_no_cause() -> None:
    log = (
        "WARNING 12-01 01:00:00 [cuda.py:45] ModuleNotFoundError: No module named 'vllm._x'\n"
        "(APIServer pid=1) INFO 12-01 01:00:01 [a.py:1] OSError: [Errno 98] Address already in use"
    )
    assert causes(log) == ()
    assert failure_from_log(log, exit_code=3).code == "ENGINE_DIED"


def test_an_empty_log_tells_the_exit_code() -> None:
    failure = failure_from_log("", exit_code=3)
    assert failure.code == "ENGINE_DIED"
    assert "exit_code=3" in failure.root_cause


def test_a_cause_that_never_ends_is_cut() -> None:
    failure = failure_from_log("ValueError: " + "x" * 5000, exit_code=1)
    assert len(failure.root_cause) < MAX_QUOTE + 60


def test_a_known_cause_wins_over_an_earlier_unknown_one() -> None:
    log = (
        "(EngineCore pid=4) ERROR 12-01 01:00:00 [c.py:1] KeyError: 'layers.0.weight'\n"
        "(EngineCore pid=4) ERROR 12-01 01:00:00 [c.py:1] ValueError: No available memory for the "
        "cache blocks."
    )
    assert failure_from_log(log, exit_code=1).code == "NO_MEMORY_FOR_KV_CACHE"
