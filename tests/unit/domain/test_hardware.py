import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import ConfigError
from tasks.domain.hardware import GIB, DeviceClass, cpu, gpu, gpus


@pytest.mark.parametrize(
    ("reported", "row"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H20", "NVIDIA H20"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("Tesla T4", "Tesla T4"),
    ],
)
def test_a_name_as_nvml_reports_it_finds_its_row(reported: str, row: str) -> None:
    assert gpu(reported).name == row


@pytest.mark.parametrize("stranger", ["NVIDIA RTX A1000", "AMD Instinct MI300X", "NVIDIA L400"])
def test_a_stranger_is_not_taken_for_a_relative(stranger: str) -> None:
    with pytest.raises(ConfigError, match=stranger):
        gpu(stranger)


def test_default_classes_follow_memory_and_leave_a100_out() -> None:
    assert gpu("NVIDIA H200").device_class is DeviceClass.H100_H200
    assert gpu("NVIDIA A100-SXM4-80GB").device_class is DeviceClass.OTHER_GPU
    assert gpu("NVIDIA B200").device_class is DeviceClass.BLACKWELL
    assert cpu(memory_bytes=None).device_class is DeviceClass.CPU


def test_every_gpu_has_a_source_and_whole_figures() -> None:
    for row in gpus():
        assert row.source
        assert row.memory_bytes is not None and row.memory_bytes > 10 * GIB
        assert row.bandwidth_bytes_s is not None and row.bandwidth_bytes_s > 1e11
        assert row.bf16_flops is not None and row.bf16_flops > 1e13


def test_a_cpu_has_no_bandwidth_until_it_is_measured() -> None:
    assert cpu(memory_bytes=GIB).bandwidth_bytes_s is None
    assert cpu(memory_bytes=GIB, bandwidth_bytes_s=2e10).bandwidth_bytes_s == 2e10


@given(st.integers(min_value=GIB, max_value=500 * GIB))
def test_a_measured_total_replaces_the_table_and_nothing_else(total: int) -> None:
    table = gpu("NVIDIA H200")
    measured = table.measured(memory_bytes=total)
    assert measured.memory_bytes == total
    assert measured.bandwidth_bytes_s == table.bandwidth_bytes_s
