"""Counts against the published parameter totals of public checkpoints."""

import pytest

from tasks.domain.errors import ConfigError, InvalidParameterError
from tasks.domain.model_spec import ModelSpec, kv_bytes_per_token, weight_bytes

LLAMA_2_7B = {
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
LLAMA_3_8B = {
    **LLAMA_2_7B,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
QWEN_25_7B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 131072,
    "max_window_layers": 28,
    "torch_dtype": "bfloat16",
}
MIXTRAL_8X7B = {
    **LLAMA_3_8B,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102400,
    "tie_word_embeddings": False,
}
GEMMA_2_2B = {
    "model_type": "gemma2",
    "num_hidden_layers": 26,
    "hidden_size": 2304,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "intermediate_size": 9216,
    "vocab_size": 256000,
    "sliding_window": 4096,
}
SMOLLM2_135M = {
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
}
QWEN_15_MOE = {
    "model_type": "qwen2_moe",
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}


def spec(config: dict[str, object], name: str = "m") -> ModelSpec:
    return ModelSpec.from_config(config, name=name, weight_bytes=None)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (LLAMA_2_7B, 6_738_415_616),
        (LLAMA_3_8B, 8_030_261_248),
        (QWEN_25_7B, 7_615_616_512),
        (MIXTRAL_8X7B, 46_702_792_704),
        (DEEPSEEK_V2_LITE, 15_706_484_224),
        (GEMMA_2_2B, 2_614_341_888),
        (SMOLLM2_135M, 134_515_008),
        (QWEN_15_MOE, 14_315_784_192),
    ],
)
def test_parameters_counted_from_shapes_equal_the_published_total(
    config: dict[str, object], published: int
) -> None:
    assert spec(config).parameters.total == published


def test_a_mixtral_token_touches_two_of_eight_experts() -> None:
    # 32 layers x 8 experts x 3 x 4096 x 14336 = 45,097,156,608 routed; 6/8 of them idle.
    assert spec(MIXTRAL_8X7B).parameters.active == 46_702_792_704 - 45_097_156_608 * 6 // 8


def test_grouped_query_attention_caches_only_the_kv_heads() -> None:
    # 2 x 32 layers x 8 heads x 128 x 2 B
    assert kv_bytes_per_token(spec(LLAMA_3_8B), element_bytes=2) == 131_072


def test_latent_attention_caches_rank_plus_rotary_key_on_every_rank() -> None:
    # 27 layers x (512 + 64) x 2 B, not divided by the ranks
    model = spec(DEEPSEEK_V2_LITE)
    assert kv_bytes_per_token(model, element_bytes=2) == 31_104
    assert kv_bytes_per_token(model, element_bytes=2, tensor_parallel=4) == 31_104


def test_more_ranks_than_kv_heads_replicate_one_head_a_rank() -> None:
    model = spec(QWEN_25_7B)
    # 2 x 28 x 1 head x 128 x 2 B
    assert kv_bytes_per_token(model, element_bytes=2, tensor_parallel=4) == 14_336
    assert kv_bytes_per_token(model, element_bytes=2, tensor_parallel=8) == 14_336


def test_ranks_that_cannot_share_kv_heads_are_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError, match="num_kv_heads=8"):
        kv_bytes_per_token(spec(LLAMA_3_8B), element_bytes=2, tensor_parallel=3)


def test_gemma2_slides_in_every_other_layer() -> None:
    model = spec(GEMMA_2_2B)
    assert (model.sliding_window, model.sliding_layers) == (4096, 13)


def test_layer_types_win_over_the_pattern() -> None:
    kinds = ["sliding_attention"] * 20 + ["full_attention"] * 6
    assert spec({**GEMMA_2_2B, "layer_types": kinds}).sliding_layers == 20


def test_a_window_that_is_switched_off_is_no_window() -> None:
    assert spec(QWEN_25_7B).sliding_window is None


def test_layers_without_a_token_cache_are_refused() -> None:
    with pytest.raises(ConfigError, match="linear_attention") as caught:
        spec({**LLAMA_3_8B, "layer_types": ["linear_attention"] * 32})
    assert caught.value.code == "UNSUPPORTED_ARCHITECTURE"


@pytest.mark.parametrize(
    "key",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"],
)
def test_a_missing_key_is_one_error_that_names_it(key: str) -> None:
    config = {k: v for k, v in LLAMA_3_8B.items() if k != key}
    with pytest.raises(ConfigError, match=key) as caught:
        spec(config, name="llama-3")
    assert "llama-3" in str(caught.value)


def test_a_mistyped_key_is_named_with_its_value() -> None:
    with pytest.raises(ConfigError, match="hidden_size='4096'"):
        spec({**LLAMA_3_8B, "hidden_size": "4096"})


def test_the_text_part_of_a_multimodal_config_is_read() -> None:
    nested: dict[str, object] = {
        "model_type": "llava",
        "torch_dtype": "bfloat16",
        "text_config": LLAMA_2_7B,
    }
    model = spec(nested)
    assert model.parameters.total == 6_738_415_616
    assert model.model_type == "llama"


def test_head_dim_may_differ_from_hidden_over_heads() -> None:
    model = spec(GEMMA_2_2B)  # 2304 / 8 = 288, but the config says 256
    assert model.head_dim == 256


@pytest.mark.parametrize("key", ["group_size", "q_group_size"])
@pytest.mark.parametrize("bits", ["bits", "w_bit"])
def test_both_awq_spellings_give_the_group_size(key: str, bits: str) -> None:
    raw = {"quant_method": "awq", bits: 4, key: 128, "zero_point": True}
    found = spec({**LLAMA_2_7B, "quantization_config": raw}).quantization
    assert found is not None
    assert (found.method, found.bits, found.group_size, found.zero_points) == ("awq", 4, 128, True)


def test_compressed_tensors_gives_bits_group_and_symmetry() -> None:
    weights = {"num_bits": 4, "group_size": 64, "symmetric": True, "strategy": "group"}
    raw = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    found = spec({**SMOLLM2_135M, "quantization_config": raw}).quantization
    assert found is not None
    assert (found.bits, found.group_size, found.zero_points) == (4, 64, False)


def test_compressed_tensors_without_weights_is_an_error() -> None:
    raw = {"quant_method": "compressed-tensors", "config_groups": {}}
    with pytest.raises(ConfigError, match="config_groups"):
        spec({**SMOLLM2_135M, "quantization_config": raw})


def test_awq_weighs_packed_linear_layers_and_plain_embeddings() -> None:
    raw = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    model = spec({**LLAMA_2_7B, "quantization_config": raw})
    # linear: 32 x (4 x 4096^2 + 3 x 4096 x 11008) = 6,476,005,376 weights
    # each 0.5 B + (2 + 0.5) / 128 B = 0.51953125 B -> 3,364,487,168 B
    # the rest: 6,738,415,616 - 6,476,005,376 = 262,410,240 weights x 2 B
    assert weight_bytes(model, element_bytes=2) == 3_364_487_168 + 524_820_480
