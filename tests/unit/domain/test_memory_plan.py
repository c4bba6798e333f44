"""Plans against what real engines printed when they started."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import GIB, Flavour, cpu, gpu
from tasks.domain.kv_pool import LengthProfile
from tasks.domain.memory_plan import MemoryPlan, memory_plan
from tasks.domain.memory_reserve import capture_sizes
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues

H200 = gpu("NVIDIA H200")
HOST = cpu(memory_bytes=20 * GIB)
SMOL = ModelSpec.from_config(
    {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    },
    name="smollm2-135m",
    weight_bytes=None,
)


def llama(**changes: object) -> ModelSpec:
    config: dict[str, object] = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 49152,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    return ModelSpec.from_config({**config, **changes}, name="8b", weight_bytes=None)


def on_h200(values: dict[str, ParameterValue], model: ModelSpec | None = None) -> MemoryPlan:
    return memory_plan(
        model or llama(),
        H200,
        ParameterValues.of(values),
        lengths=None,
        flavour=Flavour.CUDA,
        engine_version="0.24.0",
    )


def on_cpu(values: dict[str, ParameterValue], gib: float | None = 1) -> MemoryPlan:
    return memory_plan(
        SMOL,
        HOST,
        ParameterValues.of(values),
        lengths=None,
        flavour=Flavour.CPU,
        cpu_kv_space_gib=gib,
    )


def logged_kv_tokens(path: Path) -> int:
    found = re.search(r"KV cache size: ([\d,]+) tokens", path.read_text(errors="replace"))
    assert found is not None
    return int(found.group(1).replace(",", ""))


@pytest.mark.parametrize("log", ["vllm-0.24.0-h200-server.log", "vllm-0.24.0-h200-live-caps.log"])
def test_the_h200_pool_is_within_five_percent_of_the_log(shared_dir: Path, log: str) -> None:
    logged = logged_kv_tokens(shared_dir / "samples" / log)
    plan = on_h200({"max_model_len": 8192})
    assert plan.kv_pool_tokens == pytest.approx(logged, rel=0.05)
    # and far better where the reserve was calibrated: within 0.2 %
    assert plan.kv_pool_tokens == pytest.approx(logged, rel=0.002)


def test_the_h200_weights_are_what_the_engine_loaded() -> None:
    # log: "Model loading took 13.76 GiB"
    assert on_h200({}).weight_bytes / GIB == pytest.approx(13.76, abs=0.02)


def test_114_gib_at_131072_bytes_a_token_are_931424_tokens() -> None:
    # 113.7 GiB is 58,214.4 pages of 16 x 131,072 B = 2 MiB; 58,214 x 16 = 931,424
    plan = on_h200({"kv_cache_memory_bytes": round(113.7 * GIB), "max_model_len": 8192})
    assert plan.kv_bytes_per_token == 131_072
    assert plan.kv_blocks == 58_214
    assert plan.kv_pool_tokens == plan.kv_logged_tokens == 931_424
    assert plan.kv_exact


@pytest.mark.parametrize(
    ("log", "values"),
    [
        ("vllm-0.32.0-cpu-server.log", {"max_model_len": 2048}),
        (
            "vllm-0.32.0-cpu-server-profiled.log",
            {"max_model_len": 2048, "dtype": "float32", "block_size": 32},
        ),
        ("vllm-0.32.0-cpu-awq-missing-kernel.log", {"max_model_len": 2048, "dtype": "float32"}),
        (
            "vllm-0.32.0-cpu-block-size-fail.log",
            {"max_model_len": 1024, "dtype": "float32", "block_size": 16},
        ),
    ],
)
def test_the_cpu_pool_is_exactly_what_the_log_says(
    shared_dir: Path, log: str, values: dict[str, ParameterValue]
) -> None:
    assert on_cpu(values).kv_logged_tokens == logged_kv_tokens(shared_dir / "samples" / log)


def test_one_gib_of_bf16_on_cpu_holds_364_blocks_of_128() -> None:
    # 2 x 30 x 3 x 64 x 2 B = 23,040 B a token; 2^30 / (128 x 23,040) = 364.09
    plan = on_cpu({"max_model_len": 2048})
    assert (plan.kv_bytes_per_token, plan.kv_blocks, plan.kv_pool_tokens) == (23_040, 364, 46_592)


def test_the_printed_size_counts_requests_in_whole_blocks() -> None:
    # max_model_len 200 takes 2 blocks of 128: 364 / 2 = 182 requests, 182 x 200 = 36,400 printed,
    # though the pool has 46,592 tokens.
    plan = on_cpu({"max_model_len": 200})
    assert (plan.kv_logged_tokens, plan.kv_pool_tokens) == (36_400, 46_592)


def test_a_fraction_of_a_gib_in_the_variable_is_cut_off_as_the_engine_does() -> None:
    assert on_cpu({}, gib=1.9).kv_bytes == GIB


def test_cpu_without_any_size_takes_the_share_of_host_memory() -> None:
    plan = on_cpu({"gpu_memory_utilization": 0.5, "max_model_len": 2048}, gib=None)
    assert not plan.kv_exact
    # 10 GiB allowed, 0.25 GiB of weights, 1 GiB for the process
    assert plan.kv_bytes / GIB == pytest.approx(8.75, abs=0.01)


def test_nothing_that_sizes_the_pool_is_an_error_that_says_what_to_give() -> None:
    with pytest.raises(InvalidParameterError, match="VLLM_CPU_KVCACHE_SPACE"):
        memory_plan(
            SMOL,
            cpu(memory_bytes=None),
            ParameterValues(),
            lengths=None,
            flavour=Flavour.CPU,
        )


def test_weights_larger_than_the_budget_are_infeasible() -> None:
    plan = on_h200({}, llama(num_hidden_layers=400))
    assert not plan.fits
    assert [p.code for p in plan.problems] == ["WEIGHTS_DO_NOT_FIT"]


def test_a_pool_below_one_longest_request_is_infeasible() -> None:
    plan = on_h200({"kv_cache_memory_bytes": GIB, "max_model_len": 8192 + 16})
    # 1 GiB holds 8,192 tokens
    assert [p.code for p in plan.problems] == ["KV_BELOW_MODEL_LEN"]
    exactly = on_h200({"kv_cache_memory_bytes": GIB, "max_model_len": 8192})
    assert exactly.fits


def test_a_worst_case_above_the_pool_is_a_warning_and_fits() -> None:
    plan = on_h200({"max_model_len": 8192})  # 1024 x 8192 against 931 thousand
    assert plan.fits
    assert [p.code for p in plan.problems] == ["WORST_CASE_ABOVE_POOL"]
    assert plan.worst_case_tokens == 8_388_608
    assert plan.full_length_requests == pytest.approx(113.7, rel=0.002)


def test_a_share_of_total_that_is_not_free_is_infeasible() -> None:
    plan = memory_plan(
        llama(),
        H200,
        ParameterValues.of({"max_model_len": 8192}),
        lengths=None,
        flavour=Flavour.CUDA,
        free_bytes=100 * GIB,
    )
    assert "NOT_ENOUGH_FREE" in {p.code for p in plan.problems}
    assert not plan.fits


def test_an_explicit_pool_larger_than_the_card_is_infeasible() -> None:
    plan = on_h200({"kv_cache_memory_bytes": 139 * GIB})
    assert "DEVICE_OVERCOMMITTED" in {p.code for p in plan.problems}


def test_concurrency_for_given_lengths_is_by_whole_blocks() -> None:
    lengths = LengthProfile(prompt_mean=1000, prompt_p99=4000, output_mean=200, output_p99=800)
    plan = memory_plan(
        llama(),
        H200,
        ParameterValues.of({"kv_cache_memory_bytes": 10 * GIB, "max_model_len": 8192}),
        lengths=lengths,
        flavour=Flavour.CUDA,
    )
    # 10 GiB = 5,120 blocks of 16; 1,100 tokens take 69 blocks, 4,800 take 300
    assert plan.concurrency_typical == 5120 // 69 == 74
    assert plan.concurrency_safe == 5120 // 300 == 17


def test_two_ranks_halve_weights_and_kv_of_each() -> None:
    one, two = on_h200({}), on_h200({"tensor_parallel_size": 2})
    assert two.weight_bytes == pytest.approx(one.weight_bytes / 2, abs=1)
    assert two.kv_bytes_per_token == one.kv_bytes_per_token // 2


def test_fp8_kv_doubles_the_tokens_of_one_size() -> None:
    size: dict[str, ParameterValue] = {"kv_cache_memory_bytes": 32 * GIB}
    plain, packed = on_h200(size), on_h200({**size, "kv_cache_dtype": "fp8"})
    assert packed.kv_pool_tokens == 2 * plain.kv_pool_tokens


def test_a_window_lets_more_long_requests_in_than_full_attention() -> None:
    size: dict[str, ParameterValue] = {
        "kv_cache_memory_bytes": 32 * GIB,
        "max_model_len": 8192,
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 64,
    }
    full = on_h200(size, llama())
    half = on_h200(
        size,
        llama(
            sliding_window=1024, layer_types=["sliding_attention"] * 16 + ["full_attention"] * 16
        ),
    )
    # full: 512 blocks a request; windowed layers: (1023 + 1024) / 16 -> 128 + 1 = 129 blocks
    assert full.full_length_requests == pytest.approx(16384 / 512)
    assert half.full_length_requests == pytest.approx(16384 / (256 + 64.5))


def test_file_size_replaces_the_count_where_the_dtype_is_the_files_own() -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 64,
    }
    model = ModelSpec.from_config(config, name="tiny", weight_bytes=123_456)
    assert on_h200({}, model).weight_bytes == 123_456
    assert on_h200({"dtype": "float32"}, model).weight_bytes != 123_456


def test_default_graph_sizes_are_the_51_of_the_log() -> None:
    assert capture_sizes(512) == 51
    assert capture_sizes(8) == 4
    assert on_h200({"enforce_eager": True}).graph_bytes == 0


@given(st.floats(0.2, 0.95), st.floats(0.2, 0.95))
def test_more_memory_never_means_fewer_tokens(first: float, second: float) -> None:
    low, high = sorted((first, second))
    small = on_h200({"gpu_memory_utilization": low})
    large = on_h200({"gpu_memory_utilization": high})
    assert small.kv_pool_tokens <= large.kv_pool_tokens


@given(st.integers(1, 2**38), st.sampled_from([16, 32, 64, 128]))
def test_the_pool_is_whole_blocks_and_never_larger_than_its_bytes(size: int, block: int) -> None:
    plan = on_h200({"kv_cache_memory_bytes": size, "block_size": block})
    assert plan.kv_pool_tokens % block == 0
    assert plan.kv_pool_tokens * plan.kv_bytes_per_token <= size
