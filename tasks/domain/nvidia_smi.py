"""Reads text that people and old tools hand over: nvidia-smi CSV and /proc/meminfo.

A value that is not a number (``N/A``, ``[Not Supported]``, ``[Unknown Error]``) is None; text
that says the GPU itself is broken becomes a flag, because such a GPU is not idle.
"""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.domain.device_samples import MIB
from tasks.domain.errors import InfeasibleError

GPU_ERROR_STATE = "GPU_ERROR_STATE"
_BROKEN = ("requires reset", "is lost")
_NUMBER = re.compile(r"^([+-]?\d+(?:\.\d+)?)\s*(%|MiB|W|MHz|C)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiRow:
    """One row of ``nvidia-smi --query-gpu=… --format=csv``; a column not asked for is None."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    util_frac: float | None = None
    memory_bus_frac: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Host memory that stands in where a GPU shares it; recorded as host_mem_*, never gpu_mem_*."""

    total_bytes: int | None
    available_bytes: int | None
    source: str


def parse_smi_csv(text: str) -> tuple[SmiRow, ...]:
    """Return the rows of nvidia-smi CSV text with its header line, units present or not.

    Rows shorter than the header lack their last columns; blank lines are skipped.
    """
    lines = [line for line in csv.reader(io.StringIO(text.strip()), skipinitialspace=True) if line]
    if not lines:
        return ()
    columns = [cell.split("[")[0].strip() for cell in lines[0]]
    return tuple(_row(dict(zip(columns, line, strict=False))) for line in lines[1:])


def ensure_usable(rows: Iterable[SmiRow]) -> None:
    """Refuse GPUs whose driver reports an error state.

    Raises:
        InfeasibleError: code GPU_ERROR_STATE, if any row carries that flag.
    """
    for row in rows:
        if GPU_ERROR_STATE in row.flags:
            raise InfeasibleError(
                f"GPU {row.index} ({row.name}) reports an error state, needed a working GPU; "
                "reset it or leave it out of the visible devices",
                code=GPU_ERROR_STATE,
            )


def host_memory(meminfo: str) -> HostMemory:
    """Return host memory from the text of /proc/meminfo (kB there are 1024 bytes)."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo, flags=re.MULTILINE))

    def size(key: str) -> int | None:
        return int(found[key]) * 1024 if key in found else None

    return HostMemory(
        total_bytes=size("MemTotal"), available_bytes=size("MemAvailable"), source="proc_meminfo"
    )


def _row(cells: dict[str, str]) -> SmiRow:
    index = _number(cells.get("index"))
    broken = any(mark in cell for cell in cells.values() for mark in _BROKEN)
    return SmiRow(
        index=None if index is None else int(index),
        name=_text(cells.get("name")),
        uuid=_text(cells.get("uuid")),
        power_w=_number(cells.get("power.draw")),
        power_limit_w=_number(cells.get("power.limit")),
        util_frac=_frac(cells.get("utilization.gpu")),
        memory_bus_frac=_frac(cells.get("utilization.memory")),
        memory_total_bytes=_bytes(cells.get("memory.total")),
        memory_used_bytes=_bytes(cells.get("memory.used")),
        memory_free_bytes=_bytes(cells.get("memory.free")),
        temperature_c=_number(cells.get("temperature.gpu")),
        sm_clock_mhz=_number(cells.get("clocks.sm", cells.get("clocks.current.sm"))),
        memory_clock_mhz=_number(cells.get("clocks.mem", cells.get("clocks.current.memory"))),
        flags=(GPU_ERROR_STATE,) if broken else (),
    )


def _text(cell: str | None) -> str | None:
    if cell is None or cell.strip() in ("", "N/A") or cell.strip().startswith("["):
        return None
    return cell.strip()


def _number(cell: str | None) -> float | None:
    match = _NUMBER.match(cell.strip()) if cell is not None else None
    return float(match.group(1)) if match else None


def _frac(cell: str | None) -> float | None:
    percent = _number(cell)
    return None if percent is None else percent / 100


def _bytes(cell: str | None) -> int | None:
    mib = _number(cell)
    return None if mib is None else int(mib * MIB)
