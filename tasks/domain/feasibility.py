"""Rules that tell, before a device is touched, whether the engine can start with some values.

Each rule is vLLM's own; the wording is ours. Nothing here knows memory: see memory_plan.
"""

from tasks.domain.catalogue.installed import at_least
from tasks.domain.model_spec import ModelSpec
from tasks.domain.problem import Problem, Severity

_NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
_AWQ = {"awq", "awq_marlin", "auto_awq"}
# Seen in the engines' own code: 0.11.0 takes only half, 0.24.0 half and bfloat16.
_AWQ_UNKNOWN_FROM = "0.11.1"
_AWQ_BFLOAT16_FROM = "0.24.0"


def scheduler_problems(
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int | None,
    enable_chunked_prefill: bool | None,
    long_prefill_token_threshold: int = 0,
) -> tuple[Problem, ...]:
    """Return what SchedulerConfig would refuse.

    tokens >= sequences always; tokens >= max_model_len only with chunked prefill off (None: the
    engine decides, which is on wherever the model supports it).
    """
    found: list[Problem] = []
    tokens, length = max_num_batched_tokens, max_model_len
    if tokens < max_num_seqs:
        sentence = (
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
            f"({max_num_seqs}); raise it or lower max_num_seqs"
        )
        found.append(_tokens_problem("BATCHED_TOKENS_BELOW_SEQS", sentence))
    if length is None:
        return tuple(found)
    if enable_chunked_prefill is False and tokens < length:
        sentence = (
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}) while "
            "chunked prefill is off; raise it to max_model_len or leave chunked prefill on"
        )
        found.append(_tokens_problem("BATCHED_TOKENS_BELOW_MODEL_LEN", sentence))
    if long_prefill_token_threshold > length:
        found.append(
            Problem(
                code="LONG_PREFILL_ABOVE_MODEL_LEN",
                name="long_prefill_token_threshold",
                sentence=(
                    f"long_prefill_token_threshold ({long_prefill_token_threshold}) cannot be "
                    f"greater than max_model_len ({length}); lower it"
                ),
            )
        )
    return tuple(found)


def _tokens_problem(code: str, sentence: str) -> Problem:
    return Problem(code=code, name="max_num_batched_tokens", sentence=sentence)


def parallel_problems(
    *,
    tensor_parallel: int,
    num_heads: int,
    num_kv_heads: int,
    intermediate_size: int,
    attention_width: int | None = None,
    group_size: int | None = None,
) -> tuple[Problem, ...]:
    """Return what the split over ``tensor_parallel`` ranks would break.

    Attention heads must divide, KV heads divide or be divided. A row-parallel layer's input
    (intermediate_size, and heads x head_dim where given) must leave whole quantization groups on
    every rank; group_size None means unquantized or ungrouped, -1 a group of the whole row.
    """
    if tensor_parallel < 1:
        return (_indivisible(f"tensor_parallel_size={tensor_parallel}; it must be at least 1"),)
    if num_heads % tensor_parallel != 0:
        return (
            _indivisible(
                f"total number of attention heads ({num_heads}) must be divisible by tensor "
                f"parallel size ({tensor_parallel}); use a divisor of {num_heads}"
            ),
        )
    if max(num_kv_heads, tensor_parallel) % min(num_kv_heads, tensor_parallel) != 0:
        return (
            _indivisible(
                f"tensor_parallel_size={tensor_parallel} cannot split num_kv_heads={num_kv_heads}; "
                f"use a divisor or a multiple of {num_kv_heads}"
            ),
        )
    inputs = (intermediate_size,) if attention_width is None else (
        intermediate_size, attention_width)  # fmt: skip
    reasons = [_group_reason(width, tensor_parallel, group_size) for width in inputs]
    return tuple(
        Problem(code="QUANT_SHAPE_NOT_DIVISIBLE", name="tensor_parallel_size", sentence=reason)
        for reason in reasons
        if reason is not None
    )


def _indivisible(sentence: str) -> Problem:
    return Problem(code="HEADS_NOT_DIVISIBLE", name="tensor_parallel_size", sentence=sentence)


def _group_reason(width: int, ranks: int, group_size: int | None) -> str | None:
    if group_size is None:
        return None
    if width % ranks != 0:
        return f"{width} is not divisible by tensor_parallel_size={ranks}; use a divisor"
    shard = width // ranks
    if group_size == -1 and ranks > 1:
        return (
            f"group_size -1 = whole input row ({width}): a TP shard of {shard} is not a multiple "
            "of it (row-parallel layers); use tensor_parallel_size=1 or quantize in groups"
        )
    if group_size > 0 and shard % group_size != 0:
        return (
            f"{width}/{ranks} = {shard} is not a multiple of group_size {group_size}; lower "
            "tensor_parallel_size or quantize with smaller groups"
        )
    return None


def model_parallel_problems(model: ModelSpec, tensor_parallel: int) -> tuple[Problem, ...]:
    """Return what splitting this model would break; experts are checked by their own width."""
    grouped = model.quantization is not None and model.quantization.method != "fp8"
    group = model.quantization.group_size if grouped and model.quantization else None
    width = model.intermediate_size if model.moe is None else model.moe.expert_width
    value_dim = model.head_dim if model.mla is None else model.mla.v_head_dim
    return parallel_problems(
        tensor_parallel=tensor_parallel,
        num_heads=model.num_heads,
        # Every rank keeps MLA's latent whole: there is no KV head to split.
        num_kv_heads=model.num_kv_heads if model.mla is None else model.num_heads,
        intermediate_size=width,
        attention_width=model.num_heads * value_dim,
        group_size=group,
    )


def dtype_problems(
    *, version: str | None, model_type: str, quantization: str | None, dtype: str
) -> tuple[Problem, ...]:
    """Return what the engine's dtype rules refuse; ``auto`` is always allowed.

    Some model types refuse float16 in every release. AWQ took only float16 up to 0.11 and takes
    bfloat16 in 0.24; releases between are not known to us and give a warning.
    """
    wanted = {"half": "float16", "float": "float32"}.get(dtype, dtype)
    if wanted == "auto":
        return ()
    supported, known = _awq_dtypes(version) if quantization in _AWQ else (None, True)
    if supported is not None and wanted not in supported:
        usable = tuple(d for d in supported if d != "float16" or model_type not in _NO_FLOAT16)
        advice = f"use {' or '.join(usable)}" if usable else "no dtype works here: upgrade vLLM"
        seen = "" if version is None else f" in vLLM {version}"
        return (
            Problem(
                code="DTYPE_NOT_SUPPORTED" if known else "DTYPE_UNVERIFIED",
                name="dtype",
                severity=Severity.ERROR if known else Severity.WARNING,
                sentence=(
                    f"dtype={wanted} is not supported for quantization {quantization}{seen}, "
                    f"which takes {', '.join(supported)}; {advice}"
                ),
                supported=supported,
                since=None if wanted != "bfloat16" else _AWQ_BFLOAT16_FROM,
            ),
        )
    if wanted == "float16" and model_type in _NO_FLOAT16:
        return (
            Problem(
                code="DTYPE_NOT_SUPPORTED_BY_MODEL",
                name="dtype",
                sentence=(
                    f"dtype=float16 is refused for model type {model_type} (numerically unstable); "
                    "use bfloat16 or float32"
                ),
                supported=("bfloat16", "float32"),
            ),
        )
    return ()


def _awq_dtypes(version: str | None) -> tuple[tuple[str, ...], bool]:
    """Return (dtypes that AWQ is known to take, whether that is known for this release)."""
    if version is None or at_least(version, _AWQ_BFLOAT16_FROM):
        return ("float16", "bfloat16"), True
    return ("float16",), not at_least(version, _AWQ_UNKNOWN_FROM)
