"""NVML field by field, against a library of our own."""

from tasks.adapters.device_sampler.nvml import NvmlReader, gpus, nvml_reason
from tasks.domain.device_samples import MIB
from tasks.domain.gpu_access import GpuProcess
from tests.fakes.nvml_library import NoDriver, UnifiedMemoryGpu


def test_an_unsupported_field_costs_only_itself_and_is_not_asked_again() -> None:
    library = UnifiedMemoryGpu()
    reader = NvmlReader(library=library)
    first, second = reader.sample(0), reader.sample(0)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (None, None)
    assert (second.util_frac, second.memory_bus_frac) == (0.37, 0.05)
    assert (second.power_w, second.temperature_c, second.thermal_throttled) == (13.4, 38.0, True)
    assert library.asked == ["memory"]


def test_a_passing_error_is_none_once_and_asked_again() -> None:
    library = UnifiedMemoryGpu()
    reader = NvmlReader(library=library)
    library.lost = True
    assert reader.sample(0).util_frac is None
    library.lost = False
    assert reader.sample(0).util_frac == 0.37


def test_a_gpu_is_named_with_what_the_driver_tells() -> None:
    info = NvmlReader(library=UnifiedMemoryGpu()).info(0)
    assert (info.name, info.uuid, info.driver) == ("NVIDIA GB10", "GPU-0", "580.95")
    assert (info.total_bytes, info.pci_bus_id) == (None, None)


def test_a_process_of_unknown_memory_is_unknown_and_not_zero() -> None:
    reader = NvmlReader(library=UnifiedMemoryGpu())
    assert reader.processes(0) == (GpuProcess(pid=28290, used_bytes=None),)
    assert reader.is_free(0, baseline_bytes=400 * MIB).free is None


def test_without_a_driver_there_is_a_reason_and_no_gpu() -> None:
    reader = NvmlReader(library=NoDriver())
    assert reader.indices == ()
    assert reader.reason is not None
    assert "NVML" in reader.reason


def test_this_host_has_gpus_or_a_reason() -> None:
    assert bool(gpus()) is (nvml_reason() is None)
