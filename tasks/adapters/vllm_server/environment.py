"""The environment variables of the engine's process: built here, hardly anything inherited.

Secrets never reach the engine; whoever needs one there names it in the launch.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour

PLUGIN_DIR = Path(__file__).resolve().parent / "live_scheduler"
"""The folder of the scheduler plug-in for the engine's PYTHONPATH; it holds nothing else."""

CONTROL_VARIABLE = "RETUNE_CONTROL_DIR"

TOKEN_VARIABLE = "RETUNE_ENGINE_TOKEN"
"""Marks every process of an engine's tree, so that a re-parented child is still known as ours."""

INHERITED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "CC",
        "CXX",
        "VLLM_CACHE_ROOT",
        "HF_HOME",
    }
)
INHERITED_PREFIXES = ("LC_", "XDG_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TRITON_", "TORCH")

FIXED: tuple[tuple[str, str], ...] = (
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("HF_HUB_OFFLINE", "1"),
    ("TRANSFORMERS_OFFLINE", "1"),
    ("VLLM_NO_USAGE_STATS", "1"),
    ("VLLM_DO_NOT_TRACK", "1"),
    ("DO_NOT_TRACK", "1"),
    ("PYTHONUNBUFFERED", "1"),
    # vLLM renames its processes; without this the new title overwrites the token's place in /proc.
    ("SPT_NOENV", "1"),
)

_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")


def engine_environment(
    launch: EngineLaunch,
    *,
    inherited: Mapping[str, str],
    token: str,
    cpus: Iterable[int],
    control_dir: Path | None = None,
) -> dict[str, str]:
    """Return the engine's whole environment.

    PROMETHEUS_MULTIPROC_DIR and PYTHONPATH are not inherited: the first would mix the metrics of
    several engines, the second would put the product's packages into the engine. The launch's own
    ``env`` is put over everything. ``cpus`` are the cores that the CPU build binds its threads to.
    With a ``control_dir`` the scheduler plug-in's folder comes first on PYTHONPATH.

    Raises:
        InvalidParameterError: kv_cache_gib is not a whole positive number.
    """
    environment = {name: value for name, value in inherited.items() if _passes(name)}
    environment.update(FIXED)
    if launch.flavour is Flavour.CPU:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = cpu_list(cpus)
        if launch.kv_cache_gib is not None:
            environment["VLLM_CPU_KVCACHE_SPACE"] = _whole_gib(launch.kv_cache_gib)
    environment.update(launch.env)
    if control_dir is not None:
        paths = (str(PLUGIN_DIR), environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        environment[CONTROL_VARIABLE] = str(control_dir)
    environment[TOKEN_VARIABLE] = token
    return environment


def cpu_list(cpus: Iterable[int]) -> str:
    """Return cores as vLLM and taskset write them, for example ``0-3,6``."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def _whole_gib(kv_cache_gib: float) -> str:
    if kv_cache_gib < 1 or kv_cache_gib != int(kv_cache_gib):
        raise InvalidParameterError(
            f"kv_cache_gib={kv_cache_gib:g}; the CPU build reads whole GiB (vLLM 0.32): "
            "use 1 or more"
        )
    return str(int(kv_cache_gib))


def _passes(name: str) -> bool:
    if name.upper().endswith(_SECRET_ENDINGS):
        return False
    return name in INHERITED or name.startswith(INHERITED_PREFIXES)
