"""What the engine will run with once it has filled in the values that nobody set."""

from dataclasses import dataclass

from tasks.domain.catalogue.lookup import row
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import DeviceSpec
from tasks.domain.parameters import ParameterValues


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValues:
    """Resolved limits. None: the engine decides by something that is not known here.

    graph_tokens: the largest captured batch, 0 with enforce_eager or on CPU.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None
    gpu_memory_utilization: float
    block_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    enable_chunked_prefill: bool | None
    dtype: str
    kv_cache_dtype: str
    kv_cache_memory_bytes: int | None
    graph_tokens: int


def integer(values: ParameterValues, name: str) -> int | None:
    """Return an integer value, None where unset.

    Raises:
        InvalidParameterError: when the value is no integer.
    """
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"{name}={value!r} is not an integer; give a whole number")
    return value


def _number(values: ParameterValues, name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidParameterError(f"{name}={value!r} is not a number; give one")
    return float(value)


def _text(values: ParameterValues, name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else "auto"


def _default(name: str, device: DeviceSpec) -> int:
    value = row(name).default_for(device.device_class)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"the catalogue's default of {name} is {value!r}, not a count")
    return value


def model_len(values: ParameterValues, model_max_len: int | None) -> int | None:
    """Return max_model_len: the value, or the model's own; -1 and auto leave it to the engine."""
    asked = values.get("max_model_len")
    if asked is None or asked in (-1, "auto"):
        return model_max_len
    return integer(values, "max_model_len")


def batch_limits(
    values: ParameterValues, *, device: DeviceSpec, max_model_len: int | None
) -> tuple[int, int]:
    """Return (max_num_seqs, max_num_batched_tokens) as vLLM fills them in for a server.

    Defaults by device, times the world size on CPU, doubled by performance_mode=throughput; a
    default of either is then cut so that tokens >= sequences and tokens <= sequences x length.
    """
    ranks = (integer(values, "tensor_parallel_size") or 1) * (
        integer(values, "pipeline_parallel_size") or 1
    )
    factor = ranks if device.device_class.value == "cpu" else 1
    if values.get("performance_mode") == "throughput":
        factor *= 2
    asked_seqs = integer(values, "max_num_seqs")
    asked_tokens = integer(values, "max_num_batched_tokens")
    seqs = _default("max_num_seqs", device) * factor if asked_seqs is None else asked_seqs
    tokens = asked_tokens
    if tokens is None:
        tokens = _default("max_num_batched_tokens", device) * factor
        if max_model_len is not None:
            if values.get("enable_chunked_prefill") is False:
                tokens = max(tokens, max_model_len)
            tokens = min(tokens, seqs * max_model_len)
    if asked_seqs is None:
        seqs = min(seqs, tokens)
    return seqs, tokens


def effective_values(
    values: ParameterValues, *, device: DeviceSpec, model_max_len: int | None
) -> EffectiveValues:
    """Return the limits that the engine will run with.

    Raises:
        InvalidParameterError: when a value that is needed here has the wrong type.
    """
    length = model_len(values, model_max_len)
    seqs, tokens = batch_limits(values, device=device, max_model_len=length)
    chunked = values.get("enable_chunked_prefill")
    ceiling = integer(values, "max_cudagraph_capture_size")
    if ceiling is None:
        ceiling = min(2 * seqs, 1024 if device.device_class.value == "blackwell" else 512)
    eager = values.get("enforce_eager") is True or device.device_class.value == "cpu"
    return EffectiveValues(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_model_len=length,
        gpu_memory_utilization=_number(values, "gpu_memory_utilization") or 0.92,
        block_size=integer(values, "block_size") or _default("block_size", device),
        tensor_parallel_size=integer(values, "tensor_parallel_size") or 1,
        pipeline_parallel_size=integer(values, "pipeline_parallel_size") or 1,
        enable_chunked_prefill=chunked if isinstance(chunked, bool) else None,
        dtype=_text(values, "dtype"),
        kv_cache_dtype=_text(values, "kv_cache_dtype"),
        kv_cache_memory_bytes=integer(values, "kv_cache_memory_bytes"),
        graph_tokens=0 if eager else min(ceiling, tokens),
    )
