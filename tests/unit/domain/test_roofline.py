"""Bounds against the figures that were measured on an H200."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.hardware import GIB, cpu, gpu
from tasks.domain.model_spec import ModelSpec
from tasks.domain.roofline import (
    decode_step,
    mbu_frac,
    mfu_frac,
    prefill_flops,
    roofline,
    touched_weight_bytes,
)

H200 = gpu("NVIDIA H200")
SHAPE: dict[str, object] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 49152,
    "tie_word_embeddings": False,
}
MODEL = ModelSpec.from_config(SHAPE, name="8b", weight_bytes=None)
MIXTRAL = ModelSpec.from_config(
    {
        **SHAPE,
        "model_type": "mixtral",
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    name="mixtral",
    weight_bytes=None,
)


def test_one_stream_on_an_h200_reaches_65_percent_of_the_weights_bound() -> None:
    # 13.76 GiB / 4.8 TB/s = 3.078 ms; measured 4.77 ms
    step = decode_step(MODEL, batch=1, context_tokens=0, weights_read_bytes=13.76 * GIB)
    assert step.bytes_moved / 4.8e12 == pytest.approx(3.078e-3, rel=1e-3)
    assert mbu_frac(step, H200, step_s=4.77e-3) == pytest.approx(0.645, abs=0.001)


def test_kv_reads_are_added_to_the_weights() -> None:
    bare = decode_step(MODEL, batch=64, context_tokens=0)
    full = decode_step(MODEL, batch=64, context_tokens=512)
    # 64 x 512 x 131,072 B = 4 GiB
    assert full.bytes_moved - bare.bytes_moved == 4 * GIB


def test_the_input_table_of_untied_embeddings_is_not_read_in_a_decode_step() -> None:
    # 7,382,241,280 parameters less 49152 x 4096 of the input table, 2 B each
    assert MODEL.parameters.total == 7_382_241_280
    read = touched_weight_bytes(MODEL, batch=1, element_bytes=2)
    assert read == 2 * (7_382_241_280 - 201_326_592)


def test_a_larger_batch_touches_more_experts_until_all_are_read() -> None:
    whole = touched_weight_bytes(MIXTRAL, batch=10_000, element_bytes=2)
    alone = touched_weight_bytes(MIXTRAL, batch=1, element_bytes=2)
    # alone 2 of 8 experts: 6/8 of 45,097,156,608 weights x 2 B stay unread
    assert whole - alone == pytest.approx(45_097_156_608 * 0.75 * 2)


def test_prefill_bound_is_two_flops_a_parameter_at_the_sustained_rate() -> None:
    found = roofline(MODEL, H200, batch=1, context_tokens=512, prompt_tokens=512)
    linear = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)  # 6,979,321,856
    flops = 2 * (linear * 512 + 49152 * 4096)
    assert prefill_flops(MODEL, 512) == flops
    assert found.ttft_bound_s == pytest.approx(flops / 790e12)
    assert found.limited_by == "bandwidth"


def test_a_very_large_batch_without_context_is_bound_by_compute() -> None:
    found = roofline(MODEL, H200, batch=1024, context_tokens=0, prompt_tokens=1)
    # 2 x 7.18e9 x 1024 / 790e12 = 18.6 ms against 3.0 ms of weights
    assert found.limited_by == "compute"
    assert found.tpot_bound_s == pytest.approx(18.6e-3, rel=0.01)


def test_a_cpu_has_no_bound_until_its_bandwidth_is_measured() -> None:
    blind = roofline(MODEL, cpu(memory_bytes=None), batch=1, context_tokens=1, prompt_tokens=1)
    assert (blind.tpot_bound_s, blind.ttft_bound_s, blind.limited_by) == (None, None, None)
    seen = cpu(memory_bytes=None, bandwidth_bytes_s=20e9)
    bound = roofline(MODEL, seen, batch=1, context_tokens=0, prompt_tokens=1).tpot_bound_s
    assert bound == pytest.approx(2 * (7_382_241_280 - 201_326_592) / 20e9)


def test_shares_are_unknown_where_the_device_or_the_time_is() -> None:
    step = decode_step(MODEL, batch=1, context_tokens=1)
    assert mbu_frac(step, cpu(memory_bytes=None), step_s=1.0) is None
    assert mbu_frac(step, H200, step_s=0.0) is None
    assert mfu_frac(1e12, cpu(memory_bytes=None), seconds=1.0) is None
    assert mfu_frac(989e12, H200, seconds=2.0) == 0.5


def test_awq_moves_a_quarter_of_the_linear_bytes() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    packed = ModelSpec.from_config(
        {**SHAPE, "quantization_config": awq}, name="awq", weight_bytes=None
    )
    plain = touched_weight_bytes(MODEL, batch=1, element_bytes=2)
    small = touched_weight_bytes(packed, batch=1, element_bytes=2)
    linear = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert plain - small == pytest.approx(linear * (2 - 0.51953125))


@given(st.integers(1, 512), st.integers(1, 512), st.integers(0, 8192))
def test_the_bound_never_falls_with_the_batch(first: int, second: int, context: int) -> None:
    low, high = sorted((first, second))
    few = roofline(MIXTRAL, H200, batch=low, context_tokens=context, prompt_tokens=1)
    many = roofline(MIXTRAL, H200, batch=high, context_tokens=context, prompt_tokens=1)
    assert few.tpot_bound_s is not None and many.tpot_bound_s is not None
    assert few.tpot_bound_s <= many.tpot_bound_s
