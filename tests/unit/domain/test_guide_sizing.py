"""The guide's three sizing examples with right numbers; its own are shown to be wrong."""

import pytest

from tasks.domain.hardware import GIB, Flavour, gpu
from tasks.domain.memory_plan import MemoryPlan, memory_plan
from tasks.domain.model_spec import ModelSpec, kv_bytes_per_token, weight_bytes
from tasks.domain.parameters import ParameterValue, ParameterValues

CONFIG: dict[str, object] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
LLAMA_2_7B = ModelSpec.from_config(CONFIG, name="llama-2-7b", weight_bytes=None)
LLAMA_2_7B_AWQ = ModelSpec.from_config(
    {**CONFIG, "quantization_config": AWQ}, name="llama-2-7b-awq", weight_bytes=None
)


def plan(values: dict[str, ParameterValue]) -> MemoryPlan:
    return memory_plan(
        LLAMA_2_7B,
        gpu("NVIDIA A100-SXM4-80GB"),
        ParameterValues.of(values),
        lengths=None,
        flavour=Flavour.CUDA,
    )


def test_kv_of_llama_2_7b_is_half_a_mebibyte_a_token_and_64_gib_in_the_guides_example() -> None:
    # 2 x 32 layers x 32 heads x 128 x 2 B
    assert kv_bytes_per_token(LLAMA_2_7B, element_bytes=2) == 524_288
    found = plan({"max_model_len": 4096, "max_num_seqs": 32, "gpu_memory_utilization": 0.9})
    assert found.worst_case_tokens == 131_072
    assert found.worst_case_bytes == 64 * GIB
    # The guide prints 8 GB, and its written formula (hidden size and heads both) gives another:
    written = 2 * 32 * 4096 * 32 * 128 * 4096 * 32 * 2
    assert written == 4096 * 64 * GIB  # hidden_size too often: 4096 times too much
    assert found.worst_case_bytes != 8 * GIB


def test_twice_the_sequences_or_four_times_the_length_scale_the_worst_case_only() -> None:
    base = plan({"max_model_len": 4096, "max_num_seqs": 32, "max_num_batched_tokens": 2048})
    wide = plan({"max_model_len": 4096, "max_num_seqs": 64, "max_num_batched_tokens": 2048})
    assert wide.worst_case_bytes == 2 * base.worst_case_bytes == 128 * GIB
    # The pool stays, up to the graphs of more batch sizes (the guide: "16 GB").
    assert wide.kv_pool_tokens == pytest.approx(base.kv_pool_tokens, rel=0.005)


def test_less_utilization_cuts_the_pool_by_more_than_its_own_share() -> None:
    high = plan({"gpu_memory_utilization": 0.9})
    low = plan({"gpu_memory_utilization": 0.7})
    cut = 1 - low.kv_pool_tokens / high.kv_pool_tokens
    # The guide: 22 %, which is 0.2 / 0.9 with no weights. Here 0.2 x 79.1 = 15.8 GiB go from
    # 71.2 - 12.6 - reserve of about 1.6 = 57.1 GiB.
    assert cut > 0.2 / 0.9
    assert cut == pytest.approx(15.82 / 57.1, abs=0.01)


def test_int4_quarters_the_weight_traffic_of_linear_layers() -> None:
    assert LLAMA_2_7B_AWQ.quantization is not None
    # 0.5 B + (2 B scale + 0.5 B zero) / 128 against 2 B: 3.85 times less, not 2
    assert 2 / LLAMA_2_7B_AWQ.quantization.bytes_per_weight == pytest.approx(3.85, abs=0.01)
    whole = weight_bytes(LLAMA_2_7B, element_bytes=2) / weight_bytes(
        LLAMA_2_7B_AWQ, element_bytes=2
    )
    # embeddings and head stay in bf16: 13.48 GB against 3.89 GB
    assert whole == pytest.approx(3.47, abs=0.01)
    assert whole > 2.0
