"""The host and one process tree through psutil: CPU, resident memory, temperature.

Shares are computed from differences of CPU times kept here, since psutil's own cpu_percent
keeps its state for the whole process and another caller would disturb it.
"""

import os
import time
from dataclasses import dataclass, field

import psutil

from tasks.domain.device_samples import HostSample

_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


@dataclass(slots=True)
class HostReader:
    """Reads host samples; ``pid`` names the root of the process tree to watch, None for none."""

    pid: int | None = None
    _busy: tuple[float, float] | None = None
    _tree: dict[tuple[int, float], float] | None = None
    _tree_at_s: float = 0.0
    _cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def sample(self) -> HostSample:
        """Return the host now; rates are since the call before, None at the first."""
        memory = psutil.virtual_memory()
        cores, rss = self._tree_use()
        return HostSample(
            cpus=self._cpus,
            cpu_frac=self._cpu_frac(),
            tree_cpu_cores=cores,
            tree_rss_bytes=rss,
            host_mem_total_bytes=int(memory.total),
            host_mem_available_bytes=int(memory.available),
            cpu_temperature_c=_cpu_temperature_c(),
        )

    def _cpu_frac(self) -> float | None:
        times = psutil.cpu_times()
        # Linux counts guest time inside user time; idle and iowait are the CPU's rest.
        guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        total = sum(times) - guest
        busy = total - times.idle - getattr(times, "iowait", 0.0)
        before, self._busy = self._busy, (busy, total)
        if before is None or total <= before[1]:
            return None
        return min(1.0, max(0.0, (busy - before[0]) / (total - before[1])))

    def _tree_use(self) -> tuple[float | None, int | None]:
        if self.pid is None:
            return None, None
        now_s = time.perf_counter()
        spent, rss = _tree_times(self.pid)
        before, self._tree = self._tree, spent or None
        elapsed, self._tree_at_s = now_s - self._tree_at_s, now_s
        if not spent:
            return None, None
        if before is None or elapsed <= 0:
            return None, rss
        grown = sum(max(0.0, seconds - before.get(key, 0.0)) for key, seconds in spent.items())
        return grown / elapsed, rss


def _tree_times(pid: int) -> tuple[dict[tuple[int, float], float], int]:
    """Return CPU seconds by (pid, start time) and the sum of resident bytes; empty if gone."""
    spent: dict[tuple[int, float], float] = {}
    rss = 0
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return {}, 0
    for process in tree:
        try:
            times, size = process.cpu_times(), process.memory_info().rss
        except psutil.Error:
            continue
        spent[(process.pid, process.create_time())] = times.user + times.system
        rss += size
    return spent, rss


def _cpu_temperature_c() -> float | None:
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return None
    try:
        sensors = read()
    except OSError:
        return None
    for name in _CPU_SENSORS:
        values = [row.current for row in sensors.get(name, ()) if row.current is not None]
        if values:
            return float(max(values))
    return None
