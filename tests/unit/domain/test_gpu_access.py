"""Which GPUs CUDA will see, and whether one is free."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.domain.device_samples import MIB, GpuInfo
from tasks.domain.gpu_access import GpuProcess, gpu_is_free, visible_gpus

TWINS = tuple(
    GpuInfo(index=i, name="NVIDIA H100", uuid=f"GPU-{i}{i}", pci_bus_id=f"0000000{i}:01:00.0")
    for i in range(3)
)


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / f"cases/{name}.yaml").read_text())
    return loaded


@pytest.mark.parametrize("number", range(1, 8))
def test_cuda_ordinals_are_mapped_to_nvml_indices(shared_dir: Path, number: int) -> None:
    data = case(shared_dir, "c-04")
    devices = [
        GpuInfo(index=d["index"], name=d["name"], uuid=d["uuid"], pci_bus_id=d["pci"])
        for d in data["input"]["nvml"]
    ]
    (given,) = [c for c in data["input"]["cases"] if c["id"] == number]
    env = {k: v for k, v in given.items() if k.startswith("CUDA_") and v is not None}
    wanted = data["expected"][str(number)]
    seen = visible_gpus(env, devices)
    indices = wanted.get("nvml_indices")
    assert seen.nvml_indices == (None if indices is None else tuple(indices))
    assert seen.error_code == wanted.get("error_code")


def test_without_the_variable_all_equal_gpus_are_seen_in_order() -> None:
    assert visible_gpus({}, TWINS).nvml_indices == (0, 1, 2)


def test_a_repeated_entry_shows_no_device() -> None:
    seen = visible_gpus({"CUDA_VISIBLE_DEVICES": "1,1"}, TWINS)
    assert (seen.nvml_indices, seen.error_code) == ((), "NO_VISIBLE_GPU")


def test_a_mig_slice_is_refused_rather_than_guessed() -> None:
    seen = visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-abc"}, TWINS)
    assert (seen.nvml_indices, seen.error_code) == (None, "UNSUPPORTED_DEVICE_ID")


def test_a_host_without_gpus_has_none_visible() -> None:
    assert visible_gpus({}, ()).error_code == "NO_VISIBLE_GPU"


def test_an_empty_process_list_does_not_make_a_full_gpu_free(shared_dir: Path) -> None:
    data = case(shared_dir, "c-06")
    nvml = data["input"]["nvml"]
    free = gpu_is_free(
        memory_used_bytes=nvml["memory_used_mib"] * MIB, baseline_bytes=nvml["baseline_mib"] * MIB
    )
    assert free.free is data["expected"]["gpu_free"]
    assert free.reason == data["expected"]["reason"]


def test_a_pid_of_another_namespace_is_an_unknown_owner(shared_dir: Path) -> None:
    data = case(shared_dir, "c-06")
    variant = data["input"]["variant_host_pids"]
    free = gpu_is_free(
        memory_used_bytes=variant["memory_used_mib"] * MIB,
        baseline_bytes=variant["baseline_mib"] * MIB,
        processes=[
            GpuProcess(pid=p["pid"], used_bytes=p["usedGpuMemory"]) for p in variant["processes"]
        ],
        pids_here=frozenset({1, 77}),
    )
    expected = data["expected"]["variant_host_pids"]
    assert (free.free, free.owner) == (expected["gpu_free"], expected["owner"])


def test_used_memory_within_the_slack_is_free_although_a_pid_is_listed() -> None:
    free = gpu_is_free(
        memory_used_bytes=900 * MIB, baseline_bytes=412 * MIB, processes=(GpuProcess(pid=4),)
    )
    assert free.free is True


def test_unknown_used_memory_is_neither_free_nor_taken() -> None:
    assert gpu_is_free(memory_used_bytes=None, baseline_bytes=0).free is None
