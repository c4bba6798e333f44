"""Keeps outcomes and records on disk, each under its key, written whole or not at all.

This folder is the truth: MLflow is a copy of it and Prefect a view of its making.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tasks.domain.codec import RecordFormatError, from_text, to_text
from tasks.domain.errors import StorageError

RecordT = TypeVar("RecordT")


def write_whole(path: Path, text: str) -> None:
    """Write a file through a temporary neighbour and a rename, so that it is whole or absent.

    Raises:
        StorageError: names the path and what to do; a full disk is told apart.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise storage_error(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Append one line to a file; a line that was cut off before is closed first.

    Raises:
        StorageError: names the path and what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as stream:
            if stream.tell() > 0:
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    stream.write(b"\n")
            stream.write(f"{line}\n".encode())
    except OSError as error:
        raise storage_error(path, error) from error


def set_aside(folder: Path) -> None:
    """Rename a folder that exists to ``<name>.earlier-1``, -2 and so on: nothing is overwritten.

    Raises:
        StorageError: if it cannot be renamed.
    """
    if not folder.exists():
        return
    number = 1 + sum(1 for _ in folder.parent.glob(f"{folder.name}.earlier-*"))
    try:
        folder.rename(folder.with_name(f"{folder.name}.earlier-{number}"))
    except OSError as error:
        raise storage_error(folder, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the error that says what keeps ``path`` from being written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"{path}: no space left on the disk; free some, then run the same command again: "
            "what was measured before is kept",
            code="DISK_FULL",
        )
    return StorageError(f"{path}: cannot be written: {error}; check the folder and its rights")


class OutcomeStore(Mapping[str, RecordT]):
    """A folder of ``<key>.json`` files read as a mapping of key to record.

    ``kind`` is a small record class whose instances are stored. A file that cannot be read (cut
    off, or of another version) counts as absent: the step is then simply done again.
    """

    def __init__(self, folder: Path, kind: type[RecordT]) -> None:
        """Remember the folder; it is made at the first write."""
        self._folder = folder
        self._kind = kind

    def put(self, key: str, record: RecordT) -> Path:
        """Store a record under its key and return the file's path.

        Raises:
            StorageError: if it cannot be written.
        """
        path = self._folder / f"{key}.json"
        write_whole(path, to_text(record, indent=1))
        return path

    def __getitem__(self, key: str) -> RecordT:
        """Return the record of a key; KeyError where there is none that can be read."""
        try:
            text = (self._folder / f"{key}.json").read_text(encoding="utf-8")
            return from_text(self._kind, text)
        except (OSError, UnicodeDecodeError, RecordFormatError) as error:
            raise KeyError(key) from error

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of the files, readable or not, in order."""
        yield from sorted(path.stem for path in self._folder.glob("*.json"))

    def __len__(self) -> int:
        """Return the number of files."""
        return sum(1 for _ in self)
