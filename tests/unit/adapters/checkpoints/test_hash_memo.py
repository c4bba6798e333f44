"""Hashes that are remembered: only for as long as the file is the one that was read."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.adapters.checkpoints.hash_memo import HashMemo, KnownFile
from tasks.domain.codec import from_text, to_text


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def memo(tmp_path: Path) -> HashMemo:
    return HashMemo(folder=tmp_path / "hashes", large_bytes=1, settled_s=0.0)


def record_of(memo: HashMemo) -> Path:
    (record,) = memo.folder.iterdir()
    return record


def mark(memo: HashMemo) -> None:
    """Change the remembered hash, which shows where it is taken from."""
    record = record_of(memo)
    record.write_text(to_text(replace(from_text(KnownFile, record.read_text()), sha256="known")))


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
    small = HashMemo(folder=tmp_path / "hashes", large_bytes=8, settled_s=0.0)
    fresh = HashMemo(folder=tmp_path / "hashes", large_bytes=1, settled_s=3600.0)
    for memo in (small, fresh):
        assert memo.sha256(weights) == digest(weights)
        assert not memo.folder.exists()


@pytest.mark.parametrize("spoilt", [b"", b"{}", b"\xff\xfe", b'{"state": 1}'])
def test_a_spoilt_record_costs_a_reading(memo: HashMemo, weights: Path, spoilt: bytes) -> None:
    memo.sha256(weights)
    record_of(memo).write_bytes(spoilt)
    assert memo.sha256(weights) == digest(weights)
    mark(memo)
    assert memo.sha256(weights) == "known"


def test_a_folder_that_cannot_be_written_costs_a_reading(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memo = HashMemo(folder=tmp_path / "file" / "hashes", large_bytes=1, settled_s=0.0)
    assert memo.sha256(weights) == digest(weights)
    assert memo.sha256(weights) == digest(weights)


def test_a_missing_file_is_told(memo: HashMemo, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        memo.sha256(tmp_path / "none")
