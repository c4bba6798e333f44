"""Reads an Nsight Systems export (``nsys export --type sqlite``) into a kernel table.

Tables exist in such a file only when they have rows, so each absence is told apart: a broken
file, a file without GPU kernels, a schema that is not known. Nothing is ever written to it.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tasks.domain.kernel_table import KernelTable, MissingTable, TraceEvent, kernel_table

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_NEEDED = {"start", "end", "deviceId", "shortName"}
_NO_KERNELS = (
    "the GPU work is in the EngineCore child: profile it too (nsys profile "
    "--trace-fork-before-exec=true --cuda-graph-trace=node) and check that the capture range "
    "covers the load"
)


def read_nsys_sqlite(path: Path) -> KernelTable | MissingTable:
    """Return the GPU kernels of an export as a table, or why there is none."""
    if not path.is_file():
        return MissingTable(code="TRACE_NOT_FOUND", reason=f"{path} does not exist")
    if path.stat().st_size == 0:
        return MissingTable(
            code="PROFILE_CORRUPT", reason=f"{path} is empty: the export was interrupted"
        )
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            return _read(database, path)
    except sqlite3.DatabaseError as error:
        return MissingTable(code="PROFILE_CORRUPT", reason=f"{path}: {error}")


def _read(database: sqlite3.Connection, path: Path) -> KernelTable | MissingTable:
    names = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    if _KERNELS not in names:
        runtime = "with" if "CUPTI_ACTIVITY_KIND_RUNTIME" in names else "without"
        return MissingTable(
            code="NO_KERNEL_DATA",
            reason=f"{path} has no table {_KERNELS} ({runtime} runtime API rows): {_NO_KERNELS}",
        )
    columns = {row[1] for row in database.execute(f"PRAGMA table_info({_KERNELS})")}
    if not columns >= _NEEDED or "StringIds" not in names:
        return MissingTable(
            code="UNKNOWN_SCHEMA",
            reason=f"{path}: needed StringIds and {_KERNELS} with {sorted(_NEEDED)}, "
            f"found columns {sorted(columns)}; export again with a matching nsys",
        )
    rows = database.execute(
        f"SELECT k.start, k.end, k.deviceId, s.value FROM {_KERNELS} k "
        "LEFT JOIN StringIds s ON s.id = k.shortName ORDER BY k.start"
    ).fetchall()
    if not rows:
        return MissingTable(code="NO_KERNEL_DATA", reason=f"{path}: no kernel; {_NO_KERNELS}")
    origin = rows[0][0]
    events = [
        TraceEvent(
            name=name or "unknown",
            category="kernel",
            start_s=(start - origin) * 1e-9,
            duration_s=(end - start) * 1e-9,
            lane=str(device),
        )
        for start, end, device, name in rows
    ]
    return kernel_table(events, source=path.name)
