"""Parts of a model's config that need reading of their own: quantization, MLA, experts, windows.

Knows the spellings that public checkpoints use; refuses layer kinds whose memory it cannot count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.domain.errors import ConfigError

Config = Mapping[str, object]

# transformers reads a missing sliding_window_pattern of these as "every nth layer is full".
_FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}
_ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationSpec:
    """How linear weights are stored.

    group_size: input values that share a scale; -1 is the whole input row, None is one scale for
    a tensor. zero_points: whether a packed zero point lies beside each scale.
    """

    method: str
    bits: int
    group_size: int | None
    zero_points: bool

    @property
    def bytes_per_weight(self) -> float:
        """Stored bytes a weight: bits/8 + (2 B scale + packed zero point) / group size.

        A scale for a whole row or tensor is spread too thin to count.
        """
        stored = self.bits / 8
        if self.group_size is None or self.group_size < 1:
            return stored
        zero = self.bits / 8 if self.zero_points else 0.0
        return stored + (2 + zero) / self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention: what is cached is the latent and one rotary key."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Experts of the sparse layers; widths are intermediate sizes.

    shared_width: summed width of the experts that every token passes. shared_gate: whether a
    scalar gate (hidden_size weights) scales them.
    """

    experts: int
    experts_per_token: int
    expert_width: int
    shared_width: int
    sparse_layers: int
    shared_gate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReader:
    """Typed access to a config.json; a missing or mistyped key is one ConfigError naming it."""

    config: Config
    name: str

    def integer(self, *keys: str) -> int:
        """Return the first of these keys that is present."""
        found = self.optional_integer(*keys)
        if found is None:
            raise ConfigError(
                f"config.json of {self.name} has no {' or '.join(keys)}; the memory plan needs it; "
                "use the config.json that lies beside the weights",
                code="MODEL_CONFIG_KEY_MISSING",
            )
        return found

    def optional_integer(self, *keys: str) -> int | None:
        """Return the first of these keys that is present and not null, else None."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(
                    f"config.json of {self.name}: {key}={value!r} is not an integer; correct it",
                    code="MODEL_CONFIG_KEY_INVALID",
                )
            return value
        return None

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean key or the default."""
        value = self.config.get(key)
        return value if isinstance(value, bool) else default

    def text(self, *keys: str) -> str | None:
        """Return the first of these keys that holds text, without a leading ``torch.``."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, str):
                return value.removeprefix("torch.")
        return None


def read_mla(reader: ConfigReader) -> MlaShape | None:
    """Return the latent attention's shape, or None for ordinary attention."""
    rank = reader.optional_integer("kv_lora_rank")
    if rank is None:
        return None
    return MlaShape(
        kv_lora_rank=rank,
        qk_rope_head_dim=reader.integer("qk_rope_head_dim"),
        qk_nope_head_dim=reader.integer("qk_nope_head_dim"),
        v_head_dim=reader.integer("v_head_dim"),
        q_lora_rank=reader.optional_integer("q_lora_rank"),
    )


def read_moe(reader: ConfigReader, num_layers: int) -> MoeShape | None:
    """Return the experts' shape, or None for a dense model."""
    experts = reader.optional_integer("num_local_experts", "n_routed_experts", "num_experts")
    if experts is None or experts < 2:
        return None
    width = reader.integer("moe_intermediate_size", "intermediate_size")
    shared = reader.optional_integer("shared_expert_intermediate_size")
    if shared is None:
        shared = (reader.optional_integer("n_shared_experts") or 0) * width
    dense_first = reader.optional_integer("first_k_dense_replace") or 0
    step = reader.optional_integer("decoder_sparse_step", "moe_layer_freq") or 1
    dense_only = reader.config.get("mlp_only_layers")
    dense_named = set(dense_only) if isinstance(dense_only, Sequence) else set()
    offset = 1 if "decoder_sparse_step" in reader.config else 0
    sparse = sum(
        1
        for layer in range(num_layers)
        if layer >= dense_first and (layer + offset) % step == 0 and layer not in dense_named
    )
    return MoeShape(
        experts=experts,
        experts_per_token=reader.integer("num_experts_per_tok"),
        expert_width=width,
        shared_width=shared,
        sparse_layers=sparse,
        shared_gate=reader.text("model_type") in {"qwen2_moe"},
    )


def read_window(reader: ConfigReader, num_layers: int) -> tuple[int | None, int]:
    """Return (window in tokens, number of layers that keep only that window).

    Raises:
        ConfigError: for layers without a KV cache of tokens (linear attention, Mamba).
    """
    kinds = reader.config.get("layer_types")
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        strange = sorted({str(k) for k in kinds} - _ATTENTION_LAYERS)
        if strange:
            raise ConfigError(
                f"config.json of {reader.name}: layer_types has {strange}, whose cache does not "
                "grow by token; this planner counts attention layers only",
                code="UNSUPPORTED_ARCHITECTURE",
            )
    window = reader.optional_integer("sliding_window")
    if window is None or not reader.flag("use_sliding_window", True):
        return None, 0
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        sliding = sum(1 for kind in kinds if kind == "sliding_attention")
        return (window, sliding) if sliding else (None, 0)
    default = _FULL_EVERY.get(reader.text("model_type") or "")
    every = reader.optional_integer("sliding_window_pattern") or default
    if every is not None:
        return window, num_layers - num_layers // every
    first = reader.optional_integer("max_window_layers")
    return window, num_layers if first is None else num_layers - first


def read_quantization(reader: ConfigReader) -> QuantizationSpec | None:
    """Return how linear weights are stored; AutoAWQ, GPTQ, FP8 and compressed-tensors spellings."""
    raw = reader.config.get("quantization_config")
    if not isinstance(raw, Mapping):
        return None
    inner = ConfigReader(config=raw, name=f"{reader.name} (quantization_config)")
    method = inner.text("quant_method") or "unknown"
    if method == "compressed-tensors":
        return _read_compressed_tensors(raw, inner)
    if method == "fp8":
        return QuantizationSpec(method=method, bits=8, group_size=None, zero_points=False)
    bits = inner.integer("bits", "w_bit")
    group = inner.optional_integer("group_size", "q_group_size")
    symmetric = inner.flag("sym", False)
    zero = inner.flag("zero_point", not symmetric)
    return QuantizationSpec(method=method, bits=bits, group_size=group, zero_points=zero)


def _read_compressed_tensors(raw: Config, inner: ConfigReader) -> QuantizationSpec:
    groups = raw.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise ConfigError(
            f"config.json of {inner.name} has no config_groups.*.weights; "
            "the memory plan needs its num_bits and group_size",
            code="MODEL_CONFIG_KEY_MISSING",
        )
    reader = ConfigReader(config=weights, name=f"{inner.name} config_groups.*.weights")
    group = reader.optional_integer("group_size")
    if group is None and weights.get("strategy") == "channel":
        group = -1
    return QuantizationSpec(
        method="compressed-tensors",
        bits=reader.integer("num_bits"),
        group_size=group,
        zero_points=not reader.flag("symmetric", True),
    )
