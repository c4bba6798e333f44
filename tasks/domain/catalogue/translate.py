"""Carry an assignment of values from one release of the engine to another, or say why not."""

from dataclasses import dataclass

from tasks.domain.catalogue.installed import at_least
from tasks.domain.catalogue.lookup import find
from tasks.domain.parameters import ParameterValue, ParameterValues

# Absent from the argument list of vLLM 0.32.0; they left with the first engine, before 0.24.
_GONE = {
    "use_v2_block_manager": "the block manager of the first engine is gone; drop it",
    "num_scheduler_steps": "multi-step scheduling is gone; async_scheduling does its work",
    "speculative_model": "write it inside speculative_config, as model",
    "num_speculative_tokens": "write it inside speculative_config",
    "max_seq_len_to_capture": "graphs go by batch: see max_cudagraph_capture_size",
    "disable_log_requests": "requests are not logged unless enable_log_requests is set; drop it",
    "preemption_mode": "preemption always recomputes; drop it",
    "guided_decoding_backend": "write it inside structured_outputs_config, as backend",
}
_GONE_BY = "0.24.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The values that carry over, what was changed on the way, and what stands against it.

    values is None when anything was refused: half a set is not a set.
    """

    values: ParameterValues | None
    changed: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def translate(values: ParameterValues, from_version: str, to_version: str) -> Translation:
    """Return the same intent in the words of another release.

    A parameter that is gone is dropped when its value did nothing and refused when dropping it
    would change the engine; a default that moved between the releases is written out.
    """
    kept: dict[str, ParameterValue] = {}
    changed: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    for name, value in values.items:
        verdict, reason = _carry(name, value, to_version)
        if verdict == "keep":
            kept[name] = value
        elif verdict == "drop":
            changed.append((name, reason))
        else:
            refused.append((name, reason))
    for name, value, reason in _moved_defaults(values, from_version, to_version):
        kept[name] = value
        changed.append((name, reason))
    return Translation(
        values=None if refused else ParameterValues.of(kept),
        changed=tuple(changed),
        refused=tuple(refused),
    )


def _carry(name: str, value: ParameterValue, to_version: str) -> tuple[str, str]:
    row = find(name)
    if name in _GONE and at_least(to_version, _GONE_BY):
        return "refuse", f"{name} is gone from vLLM {to_version}: {_GONE[name]}"
    if row is None or row.exists_in(to_version):
        return "keep", ""
    if row.removed is not None and at_least(to_version, row.removed):
        if value in (0, False):
            return "drop", f"{name}={value} asked for nothing, and {name} left in {row.removed}"
        return "refuse", (
            f"{name}={value} cannot be said in vLLM {to_version}: removed in {row.removed}. "
            f"{row.guide_note}. The nearest, {row.nearest}, does something else; decide by hand"
        )
    defaults = {default.value for default in row.defaults}
    if value in defaults:
        return "drop", f"{name}={value} is what vLLM {to_version} does without it"
    return "refuse", f"{name} came in {row.added}; vLLM {to_version} cannot do it"


def _moved_defaults(
    values: ParameterValues, from_version: str, to_version: str
) -> tuple[tuple[str, ParameterValue, str], ...]:
    """Return (name, value, reason) of defaults that changed between the releases and were unset.

    gpu_memory_utilization was 0.9 in 0.11 and before, and is 0.92 in 0.24 and later.
    """
    old = 0.9 if not at_least(from_version, "0.12.0") else None
    old = 0.92 if at_least(from_version, "0.24.0") else old
    new = 0.92 if at_least(to_version, "0.24.0") else None
    new = 0.9 if not at_least(to_version, "0.12.0") else new
    unset = values.get("gpu_memory_utilization") is None
    if not unset or old is None or new is None or old == new:
        return ()
    if values.get("kv_cache_memory_bytes") is not None:
        return ()
    reason = f"unset meant {old} in vLLM {from_version} and means {new} in {to_version}"
    return (("gpu_memory_utilization", old, reason),)
