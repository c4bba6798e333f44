"""The numbers that diagnosis rules look at, drawn from a profile, the client and the roofline.

A fact that was not measured is None. Names carry their units; a yes or no is 1.0 or 0.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.domain.device_samples import DeviceSummary
from tasks.domain.engine_window import EngineWindow
from tasks.domain.kernel_table import KernelTable
from tasks.domain.profile import Profile
from tasks.domain.slo import Slo

Facts = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyView:
    """What the client saw. waiting: requests queued on average, where the engine tells none.

    client_late: the client missed its own send or receive times, so latencies are not the
    engine's. Latencies are in seconds from the due time. trace_reuse_frac: share of the prompts'
    tokens that the trace itself repeats; a cache cannot be hit more.
    """

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    slo: Slo | None = None
    client_late: bool | None = None
    prompt_tokens_mean: float | None = None
    waiting: float | None = None
    trace_reuse_frac: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineView:
    """Shares of the card's peaks: bytes (mbu) and FLOPs (mfu) a step over its measured time."""

    mbu_frac: float | None = None
    mfu_frac: float | None = None


def gather_facts(
    profile: Profile,
    *,
    latency: LatencyView,
    roofline: RooflineView | None = None,
    max_num_seqs: int | None = None,
) -> dict[str, float | None]:
    """Return every fact by name.

    GPU shares are means over the GPUs, temperatures their hottest. preemptions_per_min counts
    the requests that V0 held swapped out, too: V1 has no swapping and recomputes instead.
    """
    slo = latency.slo
    return {
        **_window_facts(profile.window, latency),
        **_device_facts(profile.device),
        **_kernel_facts(profile.kernels),
        "max_num_seqs": None if max_num_seqs is None else float(max_num_seqs),
        "ttft_p99_s": latency.ttft_p99_s,
        "tpot_p99_s": latency.tpot_p99_s,
        "slo_ttft_s": None if slo is None else slo.ttft_s,
        "slo_tpot_s": None if slo is None else slo.tpot_s,
        "client_late": None if latency.client_late is None else float(latency.client_late),
        "prompt_tokens_mean": _prompt_tokens_mean(profile.window, latency),
        "mbu_frac": None if roofline is None else roofline.mbu_frac,
        "mfu_frac": None if roofline is None else roofline.mfu_frac,
    }


def _window_facts(window: EngineWindow | None, latency: LatencyView) -> dict[str, float | None]:
    if window is None:
        window = EngineWindow(duration_s=0.0, snapshots=0)
    waiting = window.waiting_mean if window.waiting_mean is not None else latency.waiting
    return {
        "preemptions_per_min": _preemptions_per_min(window),
        "kv_usage_mean_frac": window.kv_usage_mean_frac,
        "kv_usage_p95_frac": window.kv_usage_p95_frac,
        "running_mean": window.running_mean,
        "running_max": window.running_max,
        "waiting_mean": waiting,
        "queue_time_mean_s": window.queue_time_mean_s,
        "prefill_time_mean_s": window.prefill_time_mean_s,
        "prefix_hit_frac": window.prefix_hit_frac,
        "trace_reuse_frac": latency.trace_reuse_frac,
        "generation_tok_s": window.generation_tok_s,
    }


def _preemptions_per_min(window: EngineWindow) -> float | None:
    seen = [n for n in (window.preemptions, window.swapped_max) if n is not None]
    return sum(seen) * 60 / window.duration_s if seen and window.duration_s > 0 else None


def _prompt_tokens_mean(window: EngineWindow | None, latency: LatencyView) -> float | None:
    if latency.prompt_tokens_mean is not None or window is None:
        return latency.prompt_tokens_mean
    if window.prompt_tokens is None or not window.requests_finished:
        return None
    return window.prompt_tokens / window.requests_finished


def _device_facts(device: DeviceSummary | None) -> dict[str, float | None]:
    gpus = () if device is None else device.gpus
    host = None if device is None else device.cpu_mean_frac
    cores = None if device is None else device.tree_cpu_mean_cores
    cpus = None if device is None else device.cpus
    return {
        "gpus": None if device is None else float(len(gpus)),
        "gpu_util_frac": _mean([gpu.util_mean_frac for gpu in gpus]),
        "memory_bus_frac": _mean([gpu.memory_bus_mean_frac for gpu in gpus]),
        "gpu_temperature_c": _most([gpu.temperature_max_c for gpu in gpus]),
        "thermal_frac": _most([gpu.thermal_frac for gpu in gpus]),
        "power_frac": _mean([gpu.power_frac for gpu in gpus]),
        "host_cpu_frac": host,
        "engine_cpu_frac": cores / cpus if cores is not None and cpus else None,
    }


def _kernel_facts(kernels: KernelTable | None) -> dict[str, float | None]:
    on_gpu = kernels is not None and kernels.kind == "gpu"
    shares = dict(kernels.categories) if kernels is not None else {}
    return {
        "kernel_busy_frac": kernels.busy_frac if kernels is not None and on_gpu else None,
        "matmul_share_frac": shares.get("matmul", 0.0) if kernels is not None else None,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _most(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
