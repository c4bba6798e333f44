"""What a running engine says it was started with, and whether that is what a set asks for.

vLLM tells the values of its cache configuration as labels of ``vllm:cache_config_info`` (seen in
0.24.0 and 0.32.0); it tells neither max_num_seqs nor max_num_batched_tokens.
"""

from tasks.domain.engine_metrics import MetricsSnapshot
from tasks.domain.parameters import ParameterValue, ParameterValues

CACHE_CONFIG = "vllm:cache_config_info"
# Label and the argument that sets it.
LABELS = (
    ("block_size", "block_size"),
    ("cache_dtype", "kv_cache_dtype"),
    ("enable_prefix_caching", "enable_prefix_caching"),
    ("gpu_memory_utilization", "gpu_memory_utilization"),
    ("kv_cache_memory_bytes", "kv_cache_memory_bytes"),
    ("prefix_caching_hash_algo", "prefix_caching_hash_algo"),
)


def reported_values(snapshot: MetricsSnapshot, *, max_model_len: int | None) -> ParameterValues:
    """Return the values that the engine reports; what it leaves open is absent."""
    found: dict[str, ParameterValue] = {}
    if max_model_len is not None:
        found["max_model_len"] = max_model_len
    sample = next((s for s in snapshot.samples if s.name == CACHE_CONFIG), None)
    if sample is not None:
        for label, name in LABELS:
            text = sample.label(label)
            if text is not None and text != "None":
                found[name] = _value(text)
    return ParameterValues.of(found)


def contradictions(asked: ParameterValues, reported: ParameterValues) -> tuple[str, ...]:
    """Return a sentence for every asked value that the engine reports to be another."""
    known = reported.as_dict()
    return tuple(
        f"the set says {name}={value}, the engine reports {known[name]}"
        for name, value in asked.items
        if name in known and value != "auto" and known[name] != value
    )


def _value(text: str) -> ParameterValue:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
