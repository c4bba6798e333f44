"""Builders of profiles with only the numbers that a test names."""

from tasks.domain.device_samples import DeviceSummary, GpuSummary
from tasks.domain.diagnosis import Diagnosis
from tasks.domain.engine_window import EngineWindow
from tasks.domain.slo import Slo

CHAT = Slo(ttft_s=1.0, tpot_s=0.03)


def gpu(
    util: float | None = None,
    bus: float | None = None,
    *,
    temperature_c: float | None = 70.0,
    thermal: float | None = 0.0,
    used_bytes: int | None = None,
    power: float | None = None,
) -> DeviceSummary:
    summary = GpuSummary(
        index=0,
        util_mean_frac=util,
        memory_bus_mean_frac=bus,
        memory_used_max_bytes=used_bytes,
        power_mean_w=None,
        power_frac=power,
        energy_j=None,
        temperature_max_c=temperature_c,
        sm_clock_mean_mhz=None,
        thermal_frac=thermal,
    )
    return host((summary,))


def host(
    gpus: tuple[GpuSummary, ...] = (),
    *,
    cpu: float | None = 0.2,
    engine_cores: float | None = None,
) -> DeviceSummary:
    return DeviceSummary(
        duration_s=60.0,
        samples=60,
        gpus=gpus,
        gpu_reason=None if gpus else "NVML: no library",
        cpus=2,
        cpu_mean_frac=cpu,
        cpu_max_frac=cpu,
        tree_cpu_mean_cores=engine_cores,
        tree_rss_max_bytes=None,
        host_mem_available_min_bytes=None,
        cpu_temperature_max_c=None,
    )


def window(**values: float | None) -> EngineWindow:
    return EngineWindow(duration_s=60.0, snapshots=61, **values)  # type: ignore[arg-type]


def holding(diagnosis: Diagnosis) -> list[str]:
    return [found.rule_id for found in diagnosis.first_reading]
