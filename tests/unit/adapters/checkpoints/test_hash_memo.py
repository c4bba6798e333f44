"""Hashes that are remembered: only for as long as the file is the one that was read."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.adapters.checkpoints.hash_memo import HashMemo, KnownFile
from tasks.adapters.evidence_store import OutcomeStore


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def memo(tmp_path: Path) -> HashMemo:
    return memo_in(tmp_path / "hashes")


def memo_in(folder: Path, *, large_bytes: int = 1, settled_s: float = 0.0) -> HashMemo:
    store = OutcomeStore(folder, KnownFile)
    return HashMemo(known=store, large_bytes=large_bytes, settled_s=settled_s)


def mark(memo: HashMemo) -> None:
    """Change the remembered hash, which shows where it is taken from."""
    store = memo.known
    assert isinstance(store, OutcomeStore)
    (key,) = store
    store.put(key, replace(store[key], sha256="known"))


def test_a_known_file_is_not_read_again_under_any_name(memo: HashMemo, weights: Path) -> None:
    assert memo.sha256(weights) == digest(weights)
    mark(memo)
    link = weights.with_name("link")
    link.symlink_to(weights)
    assert (memo.sha256(weights), memo.sha256(link)) == ("known", "known")


def test_a_file_with_other_bytes_is_read_though_size_and_time_are_as_before(
    memo: HashMemo, weights: Path
) -> None:
    before = weights.stat()
    memo.sha256(weights)
    mark(memo)
    while weights.stat().st_ctime_ns == before.st_ctime_ns:  # a file system's clock ticks in ms
        weights.write_bytes(b"WEIGHTS")
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert memo.sha256(weights) == digest(weights)
    assert memo.sha256(weights) == digest(weights)


def test_another_file_in_its_place_is_read(memo: HashMemo, weights: Path) -> None:
    memo.sha256(weights)
    mark(memo)
    other = weights.with_name("new")
    other.write_bytes(b"renamed")
    other.replace(weights)
    assert memo.sha256(weights) == digest(weights)


def test_small_files_and_files_that_changed_a_moment_ago_are_not_remembered(
    tmp_path: Path, weights: Path
) -> None:
    folder = tmp_path / "hashes"
    for memo in (memo_in(folder, large_bytes=8), memo_in(folder, settled_s=3600.0)):
        assert memo.sha256(weights) == digest(weights)
        assert not folder.exists()


@pytest.mark.parametrize("spoilt", [b"", b"{}", b"\xff\xfe", b'{"state": 1}'])
def test_a_spoilt_record_costs_a_reading(
    memo: HashMemo, weights: Path, tmp_path: Path, spoilt: bytes
) -> None:
    memo.sha256(weights)
    (record,) = (tmp_path / "hashes").iterdir()
    record.write_bytes(spoilt)
    assert memo.sha256(weights) == digest(weights)
    mark(memo)
    assert memo.sha256(weights) == "known"


def test_a_folder_that_cannot_be_written_costs_a_reading(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memo = memo_in(tmp_path / "file" / "hashes")
    assert memo.sha256(weights) == digest(weights)
    assert memo.sha256(weights) == digest(weights)


def test_a_missing_file_is_told(memo: HashMemo, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        memo.sha256(tmp_path / "none")
