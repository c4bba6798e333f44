"""What a memory plan's numbers mean: the findings that stop an engine, and sentences to read."""

from tasks.domain.catalogue.effective import EffectiveValues
from tasks.domain.hardware import GIB
from tasks.domain.kv_pool import KvPool
from tasks.domain.problem import Problem, Severity


def _gib(value: float) -> str:
    return f"{value / GIB:.2f} GiB"


def plan_problems(
    *,
    pool: KvPool,
    effective: EffectiveValues,
    total_bytes: int | None,
    allowed_bytes: int | None,
    weight_bytes: int,
    taken_bytes: int,
    kv_bytes: int,
    free_bytes: int | None,
    explicit: bool,
) -> tuple[Problem, ...]:
    """Return the findings; vLLM itself refuses to start for every one that is an error."""
    found: list[Problem] = []
    if allowed_bytes is not None and kv_bytes <= 0:
        return (
            Problem(
                code="WEIGHTS_DO_NOT_FIT",
                name="gpu_memory_utilization",
                sentence=(
                    f"weights of {_gib(weight_bytes)} and the engine's own buffers leave nothing "
                    f"of the {_gib(allowed_bytes)} allowed; raise tensor_parallel_size, quantize "
                    "or raise gpu_memory_utilization"
                ),
            ),
        )
    if total_bytes is not None and taken_bytes > total_bytes:
        name = "kv_cache_memory_bytes" if explicit else "gpu_memory_utilization"
        sentence = (
            f"weights, KV pool, activations and graphs need {_gib(taken_bytes)} of "
            f"{_gib(total_bytes)}; lower {name}"
        )
        found.append(Problem(code="DEVICE_OVERCOMMITTED", name=name, sentence=sentence))
    if free_bytes is not None and not explicit and (allowed_bytes or 0) > free_bytes:
        sentence = (
            f"gpu_memory_utilization={effective.gpu_memory_utilization:g} asks for "
            f"{_gib(allowed_bytes or 0)} of total memory and only {_gib(free_bytes)} is free; "
            "lower it or stop the other process"
        )
        found.append(
            Problem(code="NOT_ENOUGH_FREE", name="gpu_memory_utilization", sentence=sentence)
        )
    return tuple(found) + _length_problems(pool, effective)


def _length_problems(pool: KvPool, effective: EffectiveValues) -> tuple[Problem, ...]:
    length = effective.max_model_len
    if length is None:
        return ()
    if pool.requests_of(length) < 1:
        sentence = (
            f"one request of max_model_len={length} needs more than the pool of {pool.tokens} "
            f"tokens; lower max_model_len to {pool.tokens} or give the pool more memory"
        )
        return (Problem(code="KV_BELOW_MODEL_LEN", name="max_model_len", sentence=sentence),)
    if pool.requests_of(length) < effective.max_num_seqs:
        sentence = (
            f"the pool holds {pool.requests_of(length):.1f} requests of max_model_len={length}, "
            f"and max_num_seqs={effective.max_num_seqs}: if all grow that long some are preempted "
            "and recomputed"
        )
        return (
            Problem(
                code="WORST_CASE_ABOVE_POOL",
                name="max_num_seqs",
                sentence=sentence,
                severity=Severity.WARNING,
            ),
        )
    return ()


def plan_sentences(
    pool: KvPool, effective: EffectiveValues, *, weights: int, safe: int | None, exact: bool
) -> tuple[str, ...]:
    """Return what a person wants to read of the plan."""
    how = "set explicitly" if exact else "estimated from what the other parts leave"
    lines = [
        f"weights take {_gib(weights)} on each rank",
        f"one token takes {pool.bytes_per_token:,} B of KV cache on each rank",
        f"the pool of {_gib(pool.bytes)} ({how}) holds {pool.tokens:,} tokens in "
        f"{pool.blocks:,} blocks of {pool.block_size}",
    ]
    if effective.max_model_len is not None:
        demand = effective.max_model_len * effective.max_num_seqs
        lines.append(
            f"max_model_len x max_num_seqs = {demand:,} tokens is the worst case, "
            f"{demand / max(1, pool.tokens):.2f} of the pool; vLLM does not reserve it"
        )
    if safe is not None:
        lines.append(f"{safe} requests of p99 prompt and output fit at once")
    return tuple(lines)
