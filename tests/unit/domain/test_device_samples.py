"""Summaries of device samples; what is missing stays missing."""

import pytest

from tasks.domain.device_samples import (
    DeviceSample,
    GpuSample,
    HostSample,
    device_summary,
    energy_j,
    tokens_per_joule,
)


def sample(at_s: float, *gpus: GpuSample, cpu: float | None = None) -> DeviceSample:
    return DeviceSample(at_s=at_s, gpus=gpus, host=HostSample(cpus=2, cpu_frac=cpu))


def test_energy_is_the_trapezoid_over_power() -> None:
    rows = [
        sample(t, GpuSample(index=0, power_w=w)) for t, w in ((0, 100.0), (2, 300.0), (3, 300.0))
    ]
    assert energy_j(rows, index=0) == 2 * 200 + 1 * 300
    assert tokens_per_joule(1400, rows) == 2.0


def test_the_devices_own_energy_counter_is_preferred() -> None:
    rows = [
        sample(0, GpuSample(index=0, power_w=100.0, energy_j=5000.0)),
        sample(2, GpuSample(index=0, power_w=100.0, energy_j=5260.0)),
    ]
    assert energy_j(rows, index=0) == 260.0


def test_one_sample_without_power_makes_tokens_per_joule_unknown() -> None:
    rows = [sample(t, GpuSample(index=0, power_w=w)) for t, w in ((0, 60.0), (1, None), (2, 60.0))]
    assert energy_j(rows, index=0) is None
    assert tokens_per_joule(1000, rows) is None


def test_the_energy_of_one_gpu_is_not_that_of_both() -> None:
    rows = [sample(t, GpuSample(index=0, power_w=50.0), GpuSample(index=1)) for t in (0.0, 1.0)]
    assert energy_j(rows, index=0) == 50.0
    assert tokens_per_joule(100, rows) is None


def test_means_are_over_the_samples_that_have_the_field() -> None:
    summary = device_summary(
        [
            sample(0, GpuSample(index=1, util_frac=0.2, temperature_c=60.0), cpu=None),
            sample(1, GpuSample(index=1, util_frac=None, temperature_c=71.0), cpu=0.5),
            sample(2, GpuSample(index=1, util_frac=0.6, thermal_throttled=True), cpu=1.0),
        ]
    )
    (gpu,) = summary.gpus
    assert gpu.util_mean_frac == pytest.approx(0.4)
    assert gpu.temperature_max_c == 71.0
    assert gpu.thermal_frac == 1.0  # of the one sample that knew
    assert gpu.memory_used_max_bytes is None
    assert summary.cpu_mean_frac == 0.75
    assert summary.gpu_reason is None


def test_without_a_gpu_the_summary_says_why() -> None:
    summary = device_summary([sample(0, cpu=0.1)], gpu_reason="NVML: no library")
    assert summary.gpus == ()
    assert summary.gpu_reason == "NVML: no library"
