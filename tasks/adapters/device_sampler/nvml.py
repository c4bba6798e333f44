"""GPUs through NVML (package nvidia-ml-py). Every field is asked for on its own.

A field that a device does not support is not asked again; one that fails for another reason is
None this time. Without a driver there are no GPUs and a reason, never an exception.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import pynvml

from tasks.domain.device_samples import GpuInfo, GpuSample
from tasks.domain.gpu_access import GpuFree, GpuProcess, gpu_is_free

_THERMAL_REASONS = 0x20 | 0x40  # software and hardware thermal slow-down bits of NVML

Handle = object
Fields = dict[str, float | int | bool | None]


@dataclass(frozen=True, slots=True)
class _Query:
    """One call of NVML and the sample fields made of its answer."""

    call: str
    arguments: tuple[int, ...]
    fields: Callable[..., Fields]


_QUERIES: tuple[_Query, ...] = (
    _Query(
        "nvmlDeviceGetUtilizationRates",
        (),
        lambda a: {"util_frac": a.gpu / 100, "memory_bus_frac": a.memory / 100},
    ),
    _Query(
        "nvmlDeviceGetMemoryInfo",
        (),
        lambda a: {
            "memory_used_bytes": int(a.used),
            "memory_free_bytes": int(a.free),
            "memory_total_bytes": int(a.total),
        },
    ),
    _Query("nvmlDeviceGetPowerUsage", (), lambda a: {"power_w": a / 1000}),
    _Query("nvmlDeviceGetEnforcedPowerLimit", (), lambda a: {"power_limit_w": a / 1000}),
    _Query("nvmlDeviceGetTotalEnergyConsumption", (), lambda a: {"energy_j": a / 1000}),
    _Query("nvmlDeviceGetTemperature", (0,), lambda a: {"temperature_c": float(a)}),
    _Query("nvmlDeviceGetClockInfo", (1,), lambda a: {"sm_clock_mhz": float(a)}),
    _Query("nvmlDeviceGetClockInfo", (2,), lambda a: {"memory_clock_mhz": float(a)}),
    _Query(
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        (),
        lambda a: {"thermal_throttled": bool(a & _THERMAL_REASONS)},
    ),
)


@dataclass(slots=True)
class NvmlReader:
    """Reads samples; remembers which (GPU, call) are unsupported in this session.

    reason: why there are no GPUs, None where there are some. library: pynvml, or an object with
    those of its functions that a test needs.
    """

    library: object = field(default_factory=lambda: pynvml)
    reason: str | None = None
    _handles: dict[int, Handle] = field(default_factory=dict)
    _unsupported: set[tuple[int, str, tuple[int, ...]]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Initialise NVML and open every device that answers."""
        try:
            self._call("nvmlInit")
            count = int(str(self._call("nvmlDeviceGetCount")))
        except pynvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return
        for index in range(count):
            try:
                self._handles[index] = self._call("nvmlDeviceGetHandleByIndex", index)
            except pynvml.NVMLError as error:
                self.reason = f"NVML: GPU {index}: {error}"
        if count == 0:
            self.reason = "NVML works but lists no GPU"

    @property
    def indices(self) -> tuple[int, ...]:
        """NVML indices of the devices that could be opened."""
        return tuple(self._handles)

    def sample(self, index: int) -> GpuSample:
        """Return one GPU now; a field that cannot be had is None."""
        values: Fields = {}
        for query in _QUERIES:
            answer = self._ask(index, query.call, query.arguments)
            if answer is not None:
                values |= query.fields(answer)
        return GpuSample(index=index, **values)  # type: ignore[arg-type]

    def info(self, index: int) -> GpuInfo:
        """Return what names a GPU; unknown names read "unknown"."""
        pci = self._ask(index, "nvmlDeviceGetPciInfo", ())
        memory = self._ask(index, "nvmlDeviceGetMemoryInfo", ())
        try:
            driver = _text(self._call("nvmlSystemGetDriverVersion"))
        except pynvml.NVMLError:
            driver = None
        return GpuInfo(
            index=index,
            name=_text(self._ask(index, "nvmlDeviceGetName", ())) or "unknown",
            uuid=_text(self._ask(index, "nvmlDeviceGetUUID", ())) or "unknown",
            total_bytes=None if memory is None else int(getattr(memory, "total", 0)) or None,
            driver=driver,
            pci_bus_id=_text(getattr(pci, "busId", None)),
        )

    def processes(self, index: int) -> tuple[GpuProcess, ...]:
        """Return NVML's compute processes; PIDs may be of another namespace. Never kill one."""
        listed = self._ask(index, "nvmlDeviceGetComputeRunningProcesses", ())
        rows = listed if isinstance(listed, list | tuple) else ()
        return tuple(GpuProcess(pid=int(p.pid), used_bytes=p.usedGpuMemory) for p in rows)

    def is_free(self, index: int, *, baseline_bytes: int) -> GpuFree:
        """Judge whether a GPU is free, by its used memory against the idle baseline."""
        return gpu_is_free(
            memory_used_bytes=self.sample(index).memory_used_bytes,
            baseline_bytes=baseline_bytes,
            processes=self.processes(index),
            pids_here=frozenset(psutil.pids()),
        )

    def _ask(self, index: int, call: str, arguments: tuple[int, ...]) -> object | None:
        key = (index, call, arguments)
        if key in self._unsupported:
            return None
        try:
            return self._call(call, self._handles[index], *arguments)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            self._unsupported.add(key)
            return None
        except pynvml.NVMLError:
            return None

    def _call(self, call: str, *arguments: object) -> object:
        function = getattr(self.library, call, None)
        if function is None:  # nvidia-ml-py drops and renames functions between versions
            raise pynvml.NVMLError_FunctionNotFound()
        answer: object = function(*arguments)
        return answer


def gpus() -> tuple[GpuInfo, ...]:
    """Return the GPUs of this host in NVML order; empty where NVML is absent."""
    reader = NvmlReader()
    return tuple(reader.info(index) for index in reader.indices)


def nvml_reason() -> str | None:
    """Return why ``gpus()`` is empty, None where it is not."""
    reader = NvmlReader()
    return None if reader.indices else reader.reason


def _text(value: object | None) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None
