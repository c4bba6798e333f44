"""Nsight exports: good, without kernels, broken, of an unknown schema."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.adapters.nsys_sqlite import read_nsys_sqlite
from tasks.domain.kernel_table import KernelTable, MissingTable


def case(shared_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / "cases/h-01.yaml").read_text())
    return loaded


def export(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


STRINGS = (
    "CREATE TABLE StringIds (id INTEGER, value TEXT)",
    "INSERT INTO StringIds VALUES (1,'k_gemm'),(2,'k_attn')",
)
KERNELS = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL "
    "(start INTEGER, end INTEGER, deviceId INTEGER, shortName INTEGER)"
)


def test_busy_time_is_the_union_of_overlapping_kernels(shared_dir: Path, tmp_path: Path) -> None:
    rows = "VALUES (0,100,0,1),(50,150,0,2),(300,400,0,1)"
    path = export(
        tmp_path / "b.sqlite", *STRINGS, KERNELS, f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {rows}"
    )
    expected = case(shared_dir)["expected"]["sqlite_b"]
    table = read_nsys_sqlite(path)
    assert isinstance(table, KernelTable)
    assert table.events == expected["kernels"]
    assert table.total_s * 1e9 == pytest.approx(expected["sum_ns"])
    assert table.busy_s * 1e9 == pytest.approx(expected["busy_union_ns"])
    assert table.span_s * 1e9 == pytest.approx(expected["span_ns"])
    assert table.busy_frac == pytest.approx(expected["busy_pct"] / 100)
    by_kernel = {row.name: row.self_s * 1e9 for row in table.rows}
    assert by_kernel == pytest.approx(expected["by_kernel_ns"])


def test_an_export_without_kernels_is_not_an_idle_gpu(shared_dir: Path, tmp_path: Path) -> None:
    path = export(
        tmp_path / "a.sqlite",
        *STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER)",
    )
    missing = read_nsys_sqlite(path)
    assert isinstance(missing, MissingTable)
    assert missing.code == case(shared_dir)["expected"]["sqlite_a"]["error_code"]
    assert "--trace-fork-before-exec=true --cuda-graph-trace=node" in missing.reason


@pytest.mark.parametrize("content", [b"", b"not a database at all, only some text" * 50])
def test_a_broken_export_is_a_missing_profile(
    shared_dir: Path, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(content)
    missing = read_nsys_sqlite(path)
    assert isinstance(missing, MissingTable)
    assert missing.code == case(shared_dir)["expected"]["sqlite_c"]["error_code"]
    assert path.read_bytes() == content


def test_another_schema_is_named_and_not_guessed(tmp_path: Path) -> None:
    path = export(
        tmp_path / "d.sqlite",
        *STRINGS,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, finish INTEGER)",
    )
    missing = read_nsys_sqlite(path)
    assert isinstance(missing, MissingTable)
    assert missing.code == "UNKNOWN_SCHEMA"
    assert "begin" in missing.reason


def test_a_file_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    missing = read_nsys_sqlite(tmp_path / "none.sqlite")
    assert isinstance(missing, MissingTable)
    assert missing.code == "TRACE_NOT_FOUND"
    assert not (tmp_path / "none.sqlite").exists()
