"""Which GPUs a CUDA process will see, and whether one is free. Pure rules over what NVML said.

Never names a process to kill: PIDs from NVML may belong to another PID namespace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.domain.device_samples import MIB, GpuInfo

FREE_SLACK_BYTES = 500 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpus:
    """NVML indices in the order of the CUDA ordinals; None where they cannot be told.

    error_code: NO_VISIBLE_GPU, AMBIGUOUS_DEVICE_ORDER, AMBIGUOUS_UUID_PREFIX or
    UNSUPPORTED_DEVICE_ID (a MIG id); None where all is well.
    """

    nvml_indices: tuple[int, ...] | None
    error_code: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process of NVML's list; used_bytes is None where unknown, which is not 0."""

    pid: int
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFree:
    """Whether a GPU is free; None where memory.used is not known."""

    free: bool | None
    reason: str
    owner: str | None = None


def visible_gpus(env: Mapping[str, str], devices: Sequence[GpuInfo]) -> VisibleGpus:
    """Return the NVML indices that CUDA's ordinals 0, 1, … will mean under ``env``.

    CUDA's rules: CUDA_VISIBLE_DEVICES lists ordinals or GPU UUIDs (an unambiguous prefix will
    do); the first invalid entry ends the list; a repeated entry empties it. Ordinals count
    fastest-first unless CUDA_DEVICE_ORDER=PCI_BUS_ID, so with unlike models they are ambiguous.
    """
    by_bus = sorted(devices, key=lambda d: (d.pci_bus_id or "", d.index))
    wanted = env.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        tokens = [str(ordinal) for ordinal in range(len(by_bus))]
    else:
        tokens = [token.strip() for token in wanted.split(",")]
    if not tokens:
        return VisibleGpus(nvml_indices=(), error_code="NO_VISIBLE_GPU", note="the host has no GPU")
    if tokens[0].startswith("MIG-"):
        return VisibleGpus(
            nvml_indices=None,
            error_code="UNSUPPORTED_DEVICE_ID",
            note=f"{tokens[0]!r} names a MIG slice; give a whole GPU by ordinal or UUID",
        )
    if tokens[0].startswith("GPU-"):
        return _by_uuid(tokens, by_bus)
    if _order_matters(tokens, env, by_bus):
        return VisibleGpus(
            nvml_indices=None,
            error_code="AMBIGUOUS_DEVICE_ORDER",
            note="GPU models differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so ordinals count "
            "fastest-first; set CUDA_DEVICE_ORDER=PCI_BUS_ID or list UUIDs",
        )
    chosen: list[int] = []
    for token in tokens:
        if not token.isdecimal() or int(token) >= len(by_bus):
            return _ended(chosen, token)
        chosen.append(by_bus[int(token)].index)
    return _checked(chosen)


def gpu_is_free(
    *,
    memory_used_bytes: int | None,
    baseline_bytes: int,
    processes: Sequence[GpuProcess] = (),
    pids_here: frozenset[int] = frozenset(),
) -> GpuFree:
    """Judge a GPU by its used memory against the idle baseline plus 500 MiB.

    processes: NVML's list, a hint for the message only: in a container it is empty or holds
    the host's PIDs. pids_here: the process ids of this namespace.
    """
    if memory_used_bytes is None:
        return GpuFree(free=None, reason="memory.used is not supported by this device")
    used, base = memory_used_bytes / MIB, baseline_bytes / MIB
    if memory_used_bytes <= baseline_bytes + FREE_SLACK_BYTES:
        return GpuFree(free=True, reason=f"memory.used {used:.0f} MiB is within the idle baseline")
    strangers = [process.pid for process in processes if process.pid not in pids_here]
    known = [process.pid for process in processes if process.pid in pids_here]
    owner = None
    if known:
        owner = ", ".join(f"PID {pid}" for pid in known)
    elif strangers:
        owner = f"unknown (PID {strangers[0]} is not in this namespace)"
    hint = f"held by {owner}" if known else "process list unusable in this PID namespace"
    return GpuFree(
        free=False,
        reason=f"memory.used {used:.0f} MiB > baseline {base:.0f} + 500 MiB, {hint}",
        owner=owner,
    )


def _order_matters(
    tokens: Sequence[str], env: Mapping[str, str], by_bus: Sequence[GpuInfo]
) -> bool:
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or not tokens[0].isdecimal():
        return False
    return len({device.name for device in by_bus}) > 1


def _by_uuid(tokens: Sequence[str], devices: Sequence[GpuInfo]) -> VisibleGpus:
    chosen: list[int] = []
    for token in tokens:
        matches = [
            d.index for d in devices if token.startswith("GPU-") and d.uuid.startswith(token)
        ]
        if len(matches) > 1:
            return VisibleGpus(
                nvml_indices=None,
                error_code="AMBIGUOUS_UUID_PREFIX",
                note=f"{token!r} begins the UUIDs of {len(matches)} GPUs; give more of it",
            )
        if not matches:
            return _ended(chosen, token)
        chosen.append(matches[0])
    return _checked(chosen)


def _ended(chosen: Sequence[int], token: str) -> VisibleGpus:
    note = f"CUDA stops at the first invalid entry, here {token!r}"
    seen = _checked(chosen)
    return VisibleGpus(nvml_indices=seen.nvml_indices, error_code=seen.error_code, note=note)


def _checked(chosen: Sequence[int]) -> VisibleGpus:
    if len(set(chosen)) < len(chosen):
        note = "CUDA shows no device when an entry is repeated"
        return VisibleGpus(nvml_indices=(), error_code="NO_VISIBLE_GPU", note=note)
    code = None if chosen else "NO_VISIBLE_GPU"
    return VisibleGpus(nvml_indices=tuple(chosen), error_code=code)
