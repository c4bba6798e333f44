"""Lower bounds on step and prefill time from bytes and FLOPs, and what share of them is reached.

A bound is None where the device's figures are: no bandwidth is guessed for a CPU.
"""

from dataclasses import dataclass

from tasks.domain.hardware import DeviceSpec
from tasks.domain.model_spec import DTYPE_BYTES, ModelSpec, kv_bytes_per_token, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """One decode step of ``batch`` requests with ``context_tokens`` tokens each, on one rank."""

    batch: int
    context_tokens: float
    bytes_moved: float
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Bounds in seconds for a model on a device; None where a figure is unknown.

    tpot_bound_s: one decode step at ``decode.batch``. ttft_bound_s: one prompt of
    ``prompt_tokens`` alone. limited_by: "bandwidth" or "compute", for the decode step.
    """

    decode: DecodeStep
    prompt_tokens: float
    tpot_bound_s: float | None
    ttft_bound_s: float | None
    limited_by: str | None


def touched_weight_bytes(model: ModelSpec, *, batch: int, element_bytes: int) -> float:
    """Return the weight bytes that one step of ``batch`` tokens reads.

    Dense layers once. Of each sparse layer's experts the expected share that at least one token
    picks, 1 - (1 - k/E)^batch, under even routing. The input table is looked up by row; where it
    is tied it is read whole as output head.
    """
    whole = float(weight_bytes(model, element_bytes=element_bytes))
    if not model.tied_embeddings:
        whole -= (model.parameters.embedding - model.parameters.output_head) * element_bytes
    if model.moe is None:
        return whole
    chosen = 1 - (1 - model.parameters.active_frac) ** batch
    packed = model.quantization
    per_weight = float(element_bytes) if packed is None else packed.bytes_per_weight
    return whole - model.parameters.routed_experts * per_weight * (1 - chosen)


def decode_step(
    model: ModelSpec,
    *,
    batch: int,
    context_tokens: float,
    element_bytes: int = DTYPE_BYTES["bfloat16"],
    kv_element_bytes: float | None = None,
    tensor_parallel: int = 1,
    weights_read_bytes: float | None = None,
) -> DecodeStep:
    """Return the bytes and FLOPs of one decode step on one rank.

    Bytes = weights read / ranks + batch x context x KV bytes per token; FLOPs = 2 x multiplied
    parameters x batch / ranks. A windowed layer reads its window only. weights_read_bytes replaces
    the counted weights, for example with the size that the engine logged.
    """
    kv = element_bytes if kv_element_bytes is None else kv_element_bytes
    weights = weights_read_bytes
    if weights is None:
        weights = touched_weight_bytes(model, batch=batch, element_bytes=element_bytes)
    full = kv_bytes_per_token(
        model,
        element_bytes=kv,
        tensor_parallel=tensor_parallel,
        layers=model.num_layers - model.sliding_layers,
    )
    windowed = kv_bytes_per_token(
        model, element_bytes=kv, tensor_parallel=tensor_parallel, layers=model.sliding_layers
    )
    kept = min(context_tokens, model.sliding_window or context_tokens)
    return DecodeStep(
        batch=batch,
        context_tokens=context_tokens,
        bytes_moved=weights / tensor_parallel + batch * (context_tokens * full + kept * windowed),
        flops=2.0 * model.parameters.matmul * batch / tensor_parallel,
    )


def prefill_flops(model: ModelSpec, prompt_tokens: float) -> float:
    """Return 2 x multiplied parameters x tokens, the output head for the last token only.

    Attention's own quadratic part is left out, so the bound stays a bound.
    """
    head = model.parameters.output_head
    return 2.0 * ((model.parameters.matmul - head) * prompt_tokens + head)


def roofline(
    model: ModelSpec,
    device: DeviceSpec,
    *,
    batch: int,
    context_tokens: float,
    prompt_tokens: float,
    element_bytes: int = DTYPE_BYTES["bfloat16"],
    kv_element_bytes: float | None = None,
    tensor_parallel: int = 1,
) -> Roofline:
    """Return the bounds; FLOP rates are the sustained one where measured, else the peak."""
    step = decode_step(
        model,
        batch=batch,
        context_tokens=context_tokens,
        element_bytes=element_bytes,
        kv_element_bytes=kv_element_bytes,
        tensor_parallel=tensor_parallel,
    )
    rate = device.sustained_bf16_flops or device.bf16_flops
    ttft = None if rate is None else prefill_flops(model, prompt_tokens) / (rate * tensor_parallel)
    if device.bandwidth_bytes_s is None:
        tpot, limited = None, None
    else:
        memory_s = step.bytes_moved / device.bandwidth_bytes_s
        compute_s = 0.0 if rate is None else step.flops / rate
        tpot = max(memory_s, compute_s)
        limited = "bandwidth" if memory_s >= compute_s else "compute"
    return Roofline(
        decode=step,
        prompt_tokens=prompt_tokens,
        tpot_bound_s=tpot,
        ttft_bound_s=ttft,
        limited_by=limited,
    )


def mbu_frac(step: DecodeStep, device: DeviceSpec, *, step_s: float) -> float | None:
    """Return memory bandwidth used: bytes moved / (step time x peak bandwidth)."""
    if device.bandwidth_bytes_s is None or step_s <= 0:
        return None
    return step.bytes_moved / (step_s * device.bandwidth_bytes_s)


def mfu_frac(flops: float, device: DeviceSpec, *, seconds: float) -> float | None:
    """Return compute used: FLOPs / (time x the vendor's dense bf16 peak)."""
    if device.bf16_flops is None or seconds <= 0:
        return None
    return flops / (seconds * device.bf16_flops)
