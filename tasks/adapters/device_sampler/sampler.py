"""Samples GPUs and host once a period in a thread, around a load that somebody else offers."""

import gzip
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from tasks.adapters.device_sampler.host import HostReader
from tasks.adapters.device_sampler.nvml import NvmlReader
from tasks.domain.device_samples import DeviceSample, DeviceSummary, device_summary


class DeviceSampler:
    """Samples between enter and exit, first and last included.

    gpu_indices: NVML indices, None for all. pid: root of a process tree to watch. path: where
    the samples are kept as gzip JSONL when the block ends; a disk that refuses is noted.
    """

    def __init__(
        self,
        period_s: float = 1.0,
        gpu_indices: Sequence[int] | None = None,
        *,
        pid: int | None = None,
        path: Path | None = None,
        nvml: NvmlReader | None = None,
        host: HostReader | None = None,
    ) -> None:
        """Open NVML where it is; without it the samples hold the host alone."""
        self._period_s = period_s
        self._nvml = NvmlReader() if nvml is None else nvml
        self._host = HostReader(pid=pid) if host is None else host
        asked = self._nvml.indices if gpu_indices is None else tuple(gpu_indices)
        self._indices = tuple(index for index in asked if index in self._nvml.indices)
        self._path = path
        self._samples: list[DeviceSample] = []
        self._notes: list[tuple[str, str]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-sampler", daemon=True)
        absent = sorted(set(asked) - set(self._nvml.indices))
        if absent:
            self._notes.append(("GPU_NOT_FOUND", f"NVML has no GPU of index {absent}"))

    @property
    def samples(self) -> tuple[DeviceSample, ...]:
        """The samples so far, in time order."""
        return tuple(self._samples)

    @property
    def gpu_reason(self) -> str | None:
        """Why no GPU is sampled, None where one is."""
        if self._indices:
            return None
        return self._nvml.reason or "none of the GPUs asked for exists"

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """What could not be done, as (code, sentence)."""
        return tuple(self._notes)

    def summary(self) -> DeviceSummary:
        """Return the samples so far, reduced."""
        return device_summary(self._samples, gpu_reason=self.gpu_reason)

    def __enter__(self) -> "DeviceSampler":
        """Take the first sample and start the thread."""
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread, take the last sample and write the file."""
        self._stop.set()
        self._thread.join()
        self._take()
        if self._path is not None:
            self._write(self._path)

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._take()

    def _take(self) -> None:
        gpus = tuple(self._nvml.sample(index) for index in self._indices)
        host = self._host.sample()
        self._samples.append(DeviceSample(at_s=time.perf_counter(), gpus=gpus, host=host))

    def _write(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(path, "wt", encoding="utf-8") as lines:
                lines.writelines(json.dumps(asdict(sample)) + "\n" for sample in self._samples)
        except OSError as error:
            self._notes.append(("DEVICE_SAMPLES_NOT_WRITTEN", f"{path}: {error}"))
