"""Outcomes on disk: whole or absent, and a full disk is said."""

import errno
from pathlib import Path

import pytest

from tasks.adapters.evidence_store import OutcomeStore, append_line, set_aside, write_whole
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import StorageError

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="m", owned=True)


def test_a_stored_record_comes_back_equal(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path / "new", Endpoint)
    store.put("k", ENDPOINT)
    assert store["k"] == ENDPOINT
    assert list(store) == ["k"]


def test_a_file_that_was_cut_off_counts_as_absent(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path, Endpoint)
    path = store.put("k", ENDPOINT)
    path.write_text(path.read_text()[:20])
    assert "k" not in store
    assert store.get("k") is None


def test_an_unknown_key_is_absent(tmp_path: Path) -> None:
    assert "nothing" not in OutcomeStore(tmp_path, Endpoint)


def test_a_full_disk_is_told_apart_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tasks.adapters.evidence_store.os.fsync", full)
    with pytest.raises(StorageError, match="no space left") as error:
        write_whole(tmp_path / "a.json", "{}")
    assert error.value.code == "DISK_FULL"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_whole(tmp_path / "file" / "a.json", "{}")


def test_what_an_earlier_try_left_is_set_aside_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "x1.00-abc"
    set_aside(folder)
    for text in ("first", "second"):
        folder.mkdir()
        (folder / "requests").write_text(text)
        set_aside(folder)
    kept = [(tmp_path / f"x1.00-abc.earlier-{i}" / "requests").read_text() for i in (1, 2)]
    assert kept == ["first", "second"]
    assert not folder.exists()


def test_lines_are_appended_after_one_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "new" / "steps.jsonl"
    append_line(path, "one")
    with path.open("a") as stream:
        stream.write("tw")
    append_line(path, "three")
    assert path.read_text() == "one\ntw\nthree\n"
    with pytest.raises(StorageError, match=r"new.*cannot be written"):
        append_line(path.parent, "no file")
