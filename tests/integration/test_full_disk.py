"""A disk that is really full: one clear error, and what was kept before stays."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.adapters.evidence_store import OutcomeStore
from tasks.adapters.request_parquet import read_requests, write_requests
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import StorageError
from tests.fakes.measurements import record

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="m", owned=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        message = f"a file system can only be mounted by root: {mounted.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_evidence_on_a_full_disk_is_one_error_and_keeps_what_was_there(small_disk: Path) -> None:
    store = OutcomeStore(small_disk / "outcomes", Endpoint)
    store.put("first", ENDPOINT)
    (small_disk / "filler").write_bytes(b"\0" * (200 << 10))
    with pytest.raises(StorageError, match="no space left on the disk") as error:
        for i in range(200):
            store.put(f"next{i}", ENDPOINT)
    assert error.value.code == "DISK_FULL"
    assert store["first"] == ENDPOINT
    assert not list((small_disk / "outcomes").glob(".*")), "a half file was left"


def test_request_rows_on_a_full_disk_leave_no_half_file(small_disk: Path) -> None:
    write_requests(small_disk / "a.parquet", [record(0, 0.0, ttft_s=0.1)], about={})
    (small_disk / "filler").write_bytes(b"\0" * (230 << 10))
    many = [record(i, i * 0.371, ttft_s=0.1 + i * 0.00037) for i in range(3000)]
    with pytest.raises(StorageError, match=r"b\.parquet"):
        write_requests(small_disk / "b.parquet", many, about={})
    assert len(read_requests(small_disk / "a.parquet")) == 1
    assert not list(small_disk.glob("*b.parquet"))
