"""Stand-ins for the pynvml module: a GPU that supports only some queries, a host without one."""

from types import SimpleNamespace

import pynvml


class UnifiedMemoryGpu:
    """One GPU that shares the host's memory: memory queries are unsupported, the rest works."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.lost = False

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"gpu{index}"

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "NVIDIA GB10"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:  # noqa: N802
        return b"GPU-0"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> object:  # noqa: N802
        self.asked.append("memory")
        raise pynvml.NVMLError_NotSupported()

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> object:  # noqa: N802
        if self.lost:
            raise pynvml.NVMLError_GpuIsLost()
        return SimpleNamespace(gpu=37, memory=5)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return 13_400

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 38

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return 0x20 | 0x4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[object]:  # noqa: N802
        return [SimpleNamespace(pid=28290, usedGpuMemory=None)]


class NoDriver:
    def nvmlInit(self) -> None:  # noqa: N802
        raise pynvml.NVMLError_LibraryNotFound()
