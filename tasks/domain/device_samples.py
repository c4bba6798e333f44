"""Samples of GPUs and of the host, and their summary over a window.

memory_bus_frac is NVML's utilization.memory: the share of time in which the memory bus was
busy, not the share of its bandwidth; util_frac is the share of time in which any kernel ran,
so one tiny kernel in a loop reads 1. memory_used_bytes on a vLLM host is always near the
gpu_memory_utilization asked for, so by itself it says nothing about load.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

MIB = 1024 * 1024
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One GPU as NVML names it; index is NVML's (PCI bus order), which CUDA's need not be."""

    index: int
    name: str
    uuid: str
    total_bytes: int | None = None
    driver: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment; a field that the device does not support is None.

    energy_j counts since the driver was loaded. thermal_throttled: clocks are held down for
    temperature, by hardware or software.
    """

    index: int
    util_frac: float | None = None
    memory_bus_frac: float | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    thermal_throttled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """The host at one moment.

    cpu_frac: share of all logical CPUs busy since the last sample (None at the first).
    tree_cpu_cores: CPU seconds per second of the watched process and its descendants.
    tree_rss_bytes: sum of their resident sizes; pages that they share are counted in each.
    """

    cpus: int
    cpu_frac: float | None = None
    tree_cpu_cores: float | None = None
    tree_rss_bytes: int | None = None
    host_mem_total_bytes: int | None = None
    host_mem_available_bytes: int | None = None
    cpu_temperature_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """All GPUs watched and the host at ``at_s`` (the sampler's monotonic clock)."""

    at_s: float
    gpus: tuple[GpuSample, ...]
    host: HostSample


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One GPU over a window: means, and the extremes that matter.

    power_frac: mean power over the enforced limit. thermal_frac: share of samples throttled.
    energy_j: consumed in the window; None where any sample lacks power and energy.
    """

    index: int
    util_mean_frac: float | None
    memory_bus_mean_frac: float | None
    memory_used_max_bytes: int | None
    power_mean_w: float | None
    power_frac: float | None
    energy_j: float | None
    temperature_max_c: float | None
    sm_clock_mean_mhz: float | None
    thermal_frac: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSummary:
    """Devices over a window. gpu_reason: why ``gpus`` is empty; None where it is not."""

    duration_s: float
    samples: int
    gpus: tuple[GpuSummary, ...]
    gpu_reason: str | None
    cpus: int | None
    cpu_mean_frac: float | None
    cpu_max_frac: float | None
    tree_cpu_mean_cores: float | None
    tree_rss_max_bytes: int | None
    host_mem_available_min_bytes: int | None
    cpu_temperature_max_c: float | None


def device_summary(
    samples: Sequence[DeviceSample], *, gpu_reason: str | None = None
) -> DeviceSummary:
    """Reduce samples in time order; a mean is over the samples that have the field."""
    indices = sorted({gpu.index for sample in samples for gpu in sample.gpus})
    hosts = [sample.host for sample in samples]
    return DeviceSummary(
        duration_s=samples[-1].at_s - samples[0].at_s if samples else 0.0,
        samples=len(samples),
        gpus=tuple(_gpu_summary(samples, index) for index in indices),
        gpu_reason=None if indices else gpu_reason or "no GPU was sampled",
        cpus=hosts[-1].cpus if hosts else None,
        cpu_mean_frac=_mean(h.cpu_frac for h in hosts),
        cpu_max_frac=_most(h.cpu_frac for h in hosts),
        tree_cpu_mean_cores=_mean(h.tree_cpu_cores for h in hosts),
        tree_rss_max_bytes=_most(h.tree_rss_bytes for h in hosts),
        host_mem_available_min_bytes=min(
            (h.host_mem_available_bytes for h in hosts if h.host_mem_available_bytes is not None),
            default=None,
        ),
        cpu_temperature_max_c=_most(h.cpu_temperature_c for h in hosts),
    )


def energy_j(samples: Sequence[DeviceSample], *, index: int) -> float | None:
    """Return the joules one GPU used over the samples.

    The device's own energy counter where first and last sample have it, else the trapezoid
    over power; None if any sample misses power (a partial sum would be too small).
    """
    rows = [(s.at_s, gpu) for s in samples for gpu in s.gpus if gpu.index == index]
    if len(rows) < 2 or len(rows) < len(samples):
        return None
    first, last = rows[0][1].energy_j, rows[-1][1].energy_j
    if first is not None and last is not None and last >= first:
        return last - first
    total = 0.0
    for (t0, before), (t1, after) in pairwise(rows):
        if before.power_w is None or after.power_w is None:
            return None
        total += (t1 - t0) * (before.power_w + after.power_w) / 2
    return total


def tokens_per_joule(tokens: float, samples: Sequence[DeviceSample]) -> float | None:
    """Return tokens over the joules of all GPUs; None where any GPU's energy is unknown."""
    indices = {gpu.index for sample in samples for gpu in sample.gpus}
    energies = [energy_j(samples, index=index) for index in indices]
    known = [energy for energy in energies if energy is not None]
    if not known or len(known) < len(energies) or sum(known) <= 0:
        return None
    return tokens / sum(known)


def _gpu_summary(samples: Sequence[DeviceSample], index: int) -> GpuSummary:
    rows = [gpu for sample in samples for gpu in sample.gpus if gpu.index == index]
    power, limit = _mean(r.power_w for r in rows), _mean(r.power_limit_w for r in rows)
    return GpuSummary(
        index=index,
        util_mean_frac=_mean(r.util_frac for r in rows),
        memory_bus_mean_frac=_mean(r.memory_bus_frac for r in rows),
        memory_used_max_bytes=_most(r.memory_used_bytes for r in rows),
        power_mean_w=power,
        power_frac=power / limit if power is not None and limit else None,
        energy_j=energy_j(samples, index=index),
        temperature_max_c=_most(r.temperature_c for r in rows),
        sm_clock_mean_mhz=_mean(r.sm_clock_mhz for r in rows),
        thermal_frac=_mean(
            None if r.thermal_throttled is None else float(r.thermal_throttled) for r in rows
        ),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _most(values: Iterable[_Number | None]) -> _Number | None:
    return max((value for value in values if value is not None), default=None)
