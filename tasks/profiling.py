"""The verbs that look: profile an engine under a load, and say what limits it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tasks.adapters.device_sampler.sampler import DeviceSampler
from tasks.adapters.prometheus_scrape import MetricsScraper
from tasks.adapters.torch_profiler import profile_window
from tasks.domain.endpoint import Endpoint
from tasks.domain.kernel_table import KernelTable, MissingTable
from tasks.domain.profile import Profile, profile_of

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """A torch profiler window of ``seconds`` after the measured load, with a load of its own.

    trace_dir: the engine's torch_profiler_dir. load: a short load, offered meanwhile.
    """

    seconds: float
    trace_dir: Path
    load: Callable[[], object]


def profile_engine(
    endpoint: Endpoint,
    load: Callable[[], Result],
    *,
    period_s: float = 1.0,
    gpu_indices: Sequence[int] | None = None,
    artifacts_dir: Path | None = None,
    trace: TraceWindow | None = None,
    requests_before: int | None = None,
) -> tuple[Result, Profile]:
    """Run ``load`` while metrics and devices are sampled; return its result and the profile.

    The torch profiler stops the engine for seconds, so its window comes after the load.
    artifacts_dir: where metrics.jsonl.gz and device.jsonl.gz are kept. requests_before: how many
    requests of ours this engine has served; 0 makes stale counters a warning.
    """
    metrics_path = None if artifacts_dir is None else artifacts_dir / "metrics.jsonl.gz"
    device_path = None if artifacts_dir is None else artifacts_dir / "device.jsonl.gz"
    sampler = DeviceSampler(period_s, gpu_indices, pid=endpoint.pid, path=device_path)
    with MetricsScraper(endpoint.url, period_s, path=metrics_path) as scraper, sampler:
        result = load()
    kernels = None if trace is None else kernel_window(endpoint, trace)
    return result, profile_of(
        scraper.snapshots,
        device=sampler.summary(),
        kernels=kernels,
        notes=(*scraper.notes, *sampler.notes),
        requests_before=requests_before,
    )


def kernel_window(endpoint: Endpoint, trace: TraceWindow) -> KernelTable | MissingTable:
    """Profile one window of kernels, with the trace's own load offered meanwhile."""
    return profile_window(
        endpoint, seconds=trace.seconds, trace_dir=trace.trace_dir, load=trace.load
    )
