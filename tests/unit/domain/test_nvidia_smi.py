"""nvidia-smi's CSV and /proc/meminfo, with everything that is not a number."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.domain.device_samples import MIB
from tasks.domain.errors import InfeasibleError
from tasks.domain.nvidia_smi import GPU_ERROR_STATE, ensure_usable, host_memory, parse_smi_csv


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / f"cases/{name}.yaml").read_text())
    return loaded


def mib(size: int | None) -> float | None:
    return None if size is None else size / MIB


def percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def test_unsupported_memory_leaves_the_other_fields_alone(shared_dir: Path) -> None:
    data = case(shared_dir, "c-01")
    (row,) = parse_smi_csv(data["input"]["nvidia_smi_csv"])
    assert {
        "memory_total_mib": mib(row.memory_total_bytes),
        "memory_used_mib": mib(row.memory_used_bytes),
        "memory_free_mib": mib(row.memory_free_bytes),
        "gpu_util_pct": percent(row.util_frac),
        "power_w": row.power_w,
        "temperature_c": row.temperature_c,
    } == data["expected"]["row"]


def test_host_memory_stands_in_under_its_own_name(shared_dir: Path) -> None:
    data = case(shared_dir, "c-01")
    memory = host_memory(data["input"]["meminfo"])
    assert {
        "source": memory.source,
        "total_mib": mib(memory.total_bytes),
        "available_mib": mib(memory.available_bytes),
    } == data["expected"]["memory_fallback"]
    assert host_memory("MemTotal:  8 kB\n").available_bytes is None


def test_every_kind_of_no_value_is_none_and_a_broken_gpu_is_flagged(shared_dir: Path) -> None:
    data = case(shared_dir, "c-02")
    rows = parse_smi_csv(data["input"]["csv"])
    seen = [
        {
            "index": row.index,
            "power_w": row.power_w,
            "power_limit_w": row.power_limit_w,
            "util_pct": percent(row.util_frac),
            "mem_used_mib": mib(row.memory_used_bytes),
            **({"flags": list(row.flags)} if row.flags else {}),
        }
        for row in rows
    ]
    assert seen == data["expected"]["rows"]


def test_a_gpu_in_an_error_state_stops_the_trial_before_launch(shared_dir: Path) -> None:
    rows = parse_smi_csv(case(shared_dir, "c-02")["input"]["csv"])
    ensure_usable(rows[:3])
    with pytest.raises(InfeasibleError, match="GPU 3") as caught:
        ensure_usable(rows)
    assert caught.value.code == GPU_ERROR_STATE


def test_units_may_be_left_out() -> None:
    (row,) = parse_smi_csv("index, utilization.gpu, memory.used, clocks.sm\n0, 37, 1024, 1410\n")
    assert (row.util_frac, row.memory_used_bytes, row.sm_clock_mhz) == (0.37, 1024 * MIB, 1410.0)


def test_no_text_has_no_rows() -> None:
    assert parse_smi_csv("\n") == ()
