"""The KV pool: bytes to blocks to tokens, and how many requests of which length it holds."""

from dataclasses import dataclass

from tasks.domain.errors import InvalidParameterError
from tasks.domain.model_spec import DTYPE_BYTES, ModelSpec, kv_bytes_per_token

# Bytes of one cached element; per-head scales of the int and fp8 per-token kinds add 4 B a head,
# which is left out here (3 % at a head size of 128).
_KV_BYTES: dict[str, float] = {
    "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1,
    "int8_per_token_head": 1, "fp8_per_token_head": 1, "int4_per_token_head": 0.5,
    "nvfp4": 0.5625,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthProfile:
    """Tokens of the traffic's requests; p99 by request, mean over requests."""

    prompt_mean: float
    prompt_p99: int
    output_mean: float
    output_p99: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """A pool of whole blocks on one rank; ``tokens`` is blocks x block size."""

    model: ModelSpec
    block_size: int
    bytes: int
    element_bytes: float
    tensor_parallel: int
    layers: int
    step_tokens: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token while every layer keeps it."""
        return kv_bytes_per_token(
            self.model,
            element_bytes=self.element_bytes,
            tensor_parallel=self.tensor_parallel,
            layers=self.layers,
        )

    @property
    def blocks(self) -> int:
        """Whole blocks that fit."""
        return max(0, self.bytes // (self.bytes_per_token * self.block_size))

    @property
    def tokens(self) -> int:
        """Tokens in whole blocks, all layers counted as full attention."""
        return self.blocks * self.block_size

    def request_blocks(self, length: int) -> float:
        """Return the blocks that one request of ``length`` tokens holds at its end.

        Layers with a window keep at most window - 1 + the tokens of one step, and one block more
        because a window does not start on a block's edge; they count by their share of layers.
        """
        full = -(-length // self.block_size)
        window, depth = self.model.sliding_window, self.model.num_layers
        if window is None or self.model.sliding_layers == 0:
            return float(full)
        kept = min(length, window - 1 + self.step_tokens)
        sliding = min(full, -(-kept // self.block_size) + 1)
        share = self.model.sliding_layers / depth
        return full * (1 - share) + sliding * share

    def requests_of(self, length: int) -> float:
        """Return how many requests of this length fit at once."""
        return self.blocks / self.request_blocks(max(1, length))

    def logged_tokens(self, max_model_len: int) -> int:
        """Return the size that vLLM prints: requests of max_model_len that fit, times it."""
        return int(self.requests_of(max_model_len) * max_model_len)


def model_element_bytes(model: ModelSpec, dtype: str) -> int:
    """Return the element size of unquantized weights and activations.

    ``auto`` is the checkpoint's dtype; float32 checkpoints run in 16 bits unless asked otherwise.

    Raises:
        InvalidParameterError: for a dtype that is not known.
    """
    name = dtype if dtype != "auto" else (model.dtype or "bfloat16")
    if name not in DTYPE_BYTES:
        raise InvalidParameterError(
            f"dtype={name!r} of {model.name} is unknown; use {', '.join(sorted(DTYPE_BYTES))}"
        )
    return 2 if dtype == "auto" else DTYPE_BYTES[name]


def kv_element_bytes(kv_cache_dtype: str, model_bytes: int) -> float:
    """Return the bytes of one cached element.

    Raises:
        InvalidParameterError: for a kv_cache_dtype whose size this planner does not know.
    """
    if kv_cache_dtype == "auto":
        return model_bytes
    if kv_cache_dtype not in _KV_BYTES:
        raise InvalidParameterError(
            f"kv_cache_dtype={kv_cache_dtype!r} has no known size here; use auto or one of "
            + ", ".join(sorted(_KV_BYTES))
        )
    return _KV_BYTES[kv_cache_dtype]
