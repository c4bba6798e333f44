"""What the planner must know of a model: its shapes, counted from config.json alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.domain.errors import ConfigError, InvalidParameterError
from tasks.domain.model_shapes import (
    ConfigReader,
    MlaShape,
    MoeShape,
    QuantizationSpec,
    read_mla,
    read_moe,
    read_quantization,
    read_window,
)
from tasks.domain.parameter_count import DecoderShape, ParameterCount, count_parameters

# Element sizes in bytes of the dtypes that vLLM runs a model in.
DTYPE_BYTES = {"float32": 4, "float16": 2, "half": 2, "bfloat16": 2, "float": 4}
_TIED_BY_DEFAULT = {"gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder's shapes.

    sliding_layers of the layers keep only ``sliding_window`` tokens. dtype is the checkpoint's
    own, None where its config names none. weight_bytes: size of the weight files, None if unknown.
    """

    name: str
    model_type: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    parameters: ParameterCount
    max_position_embeddings: int | None = None
    dtype: str | None = None
    sliding_window: int | None = None
    sliding_layers: int = 0
    mla: MlaShape | None = None
    moe: MoeShape | None = None
    quantization: QuantizationSpec | None = None
    weight_bytes: int | None = None

    @classmethod
    def from_config(
        cls, config: Mapping[str, object], *, name: str, weight_bytes: int | None
    ) -> "ModelSpec":
        """Read a config.json, the text part of a multimodal one included.

        Raises:
            ConfigError: when a key that the counts need is missing or of the wrong type.
        """
        reader = ConfigReader(config=_text_part(config), name=name)
        shape = _shape(reader)
        window, sliding_layers = read_window(reader, shape.num_layers)
        return cls(
            name=name,
            model_type=shape.model_type,
            num_layers=shape.num_layers,
            hidden_size=shape.hidden_size,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            intermediate_size=shape.intermediate_size,
            vocab_size=shape.vocab_size,
            tied_embeddings=shape.tied_embeddings,
            parameters=count_parameters(shape),
            max_position_embeddings=reader.optional_integer("max_position_embeddings"),
            dtype=reader.text("dtype", "torch_dtype"),
            sliding_window=window,
            sliding_layers=sliding_layers,
            mla=shape.mla,
            moe=shape.moe,
            quantization=read_quantization(_quantization_reader(config, reader)),
            weight_bytes=weight_bytes,
        )


def _shape(reader: ConfigReader) -> DecoderShape:
    """Read what the parameter count needs."""
    model_type = reader.text("model_type") or "unknown"
    layers = reader.integer("num_hidden_layers")
    heads = reader.integer("num_attention_heads")
    hidden = reader.integer("hidden_size")
    mla = read_mla(reader)
    return DecoderShape(
        model_type=model_type,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=reader.optional_integer("num_key_value_heads") or heads,
        head_dim=_head_dim(reader, hidden, heads, mla),
        intermediate_size=reader.integer("intermediate_size"),
        vocab_size=reader.integer("vocab_size"),
        tied_embeddings=reader.flag("tie_word_embeddings", model_type in _TIED_BY_DEFAULT),
        attention_bias=reader.flag("attention_bias", False),
        mlp_bias=reader.flag("mlp_bias", False),
        mla=mla,
        moe=read_moe(reader, layers),
    )


def _text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return ``text_config`` with what only the outer config says, or the config itself."""
    inner = config.get("text_config") or config.get("llm_config")
    if not isinstance(inner, Mapping):
        return config
    outer = {
        key: config[key]
        for key in ("torch_dtype", "dtype", "tie_word_embeddings", "model_type")
        if key in config
    }
    return {**outer, **inner}


def _quantization_reader(config: Mapping[str, object], inner: ConfigReader) -> ConfigReader:
    if "quantization_config" in config:
        return ConfigReader(config=config, name=inner.name)
    return inner


def _head_dim(reader: ConfigReader, hidden: int, heads: int, mla: MlaShape | None) -> int:
    """Return the head size: explicit, or hidden / heads where that divides."""
    explicit = reader.optional_integer("head_dim")
    if explicit is not None:
        return explicit
    if mla is not None:
        return mla.qk_nope_head_dim + mla.qk_rope_head_dim
    if heads < 1 or hidden % heads != 0:
        raise ConfigError(
            f"config.json of {reader.name} has no head_dim and hidden_size={hidden} is not a "
            f"multiple of num_attention_heads={heads}; add head_dim",
            code="MODEL_CONFIG_KEY_MISSING",
        )
    return hidden // heads


def kv_bytes_per_token(
    model: ModelSpec, *, element_bytes: float, tensor_parallel: int = 1, layers: int | None = None
) -> int:
    """Return the KV-cache bytes one token occupies on one rank, all layers counted as full.

    2 x layers x (KV heads / ranks, at least 1) x head_dim x element bytes. MLA caches one latent
    of kv_lora_rank + qk_rope_head_dim a layer, whole on every rank.

    Raises:
        InvalidParameterError: if neither of KV heads and tensor_parallel divides the other.
    """
    depth = model.num_layers if layers is None else layers
    if model.mla is not None:
        width = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
        return round(depth * width * element_bytes)
    heads, ranks = model.num_kv_heads, tensor_parallel
    if ranks < 1 or max(heads, ranks) % min(heads, ranks) != 0:
        raise InvalidParameterError(
            f"tensor_parallel_size={ranks} cannot split num_kv_heads={heads} of {model.name}; "
            f"use a divisor or a multiple of {heads}"
        )
    return round(2 * depth * max(1, heads // ranks) * model.head_dim * element_bytes)


def weight_bytes(model: ModelSpec, *, element_bytes: int) -> int:
    """Return the bytes of all weights when unquantized tensors take ``element_bytes`` each.

    Quantized linear weights take their packed size with scales and zero points; embeddings, the
    output head, norms and routers stay in the model's dtype.
    """
    counts = model.parameters
    rest = counts.total - counts.linear
    per_linear = (
        element_bytes if model.quantization is None else model.quantization.bytes_per_weight
    )
    return round(counts.linear * per_linear + rest * element_bytes)
