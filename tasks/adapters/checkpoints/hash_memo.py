"""Remembers the hashes of large files: a switch between two sets need not read all weights.

A file is known by its place, size, times and inode. ``ctime`` is among them, which a writer that
restores the modification time does not restore; a file that changed a moment ago is not
remembered, since a second change could leave the same times.
"""

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.adapters.checkpoints.hashing import file_sha256
from tasks.domain.errors import StorageError

LARGE_BYTES = 64 << 20
SETTLED_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as its folder lists it; equal states hold equal bytes."""

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A state and the SHA-256 of the bytes that were read in it."""

    state: FileState
    sha256: str


class KnownFiles(Protocol):
    """Where known files are kept: a mapping of key to record with a ``put``."""

    def get(self, key: str, /) -> KnownFile | None:
        """Return the record of a key, None where there is none that can be read."""

    def put(self, key: str, record: KnownFile, /) -> object:
        """Store a record; StorageError where it cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMemo:
    """Hashes of files of at least ``large_bytes``, kept in ``known``.

    A record that cannot be read or written costs a reading of the file, nothing else.
    """

    known: KnownFiles
    large_bytes: int = LARGE_BYTES
    settled_s: float = SETTLED_S

    def sha256(self, path: Path) -> str:
        """Return the SHA-256 of a file's bytes, read only where the file is not known.

        Raises:
            OSError: the file cannot be read.
        """
        state = _state(path)
        if state.size_bytes < self.large_bytes:
            return file_sha256(path)
        key = hashlib.sha256(state.path.encode()).hexdigest()[:32]
        known = self.known.get(key)
        if known is not None and known.state == state:
            return known.sha256
        found = file_sha256(path)
        settled = time.time() - state.changed_ns / 1e9 >= self.settled_s
        if settled and _state(path) == state:
            with suppress(StorageError):
                self.known.put(key, KnownFile(state=state, sha256=found))
        return found


def _state(path: Path) -> FileState:
    real = path.resolve()
    seen = real.stat()
    return FileState(
        path=str(real),
        device=seen.st_dev,
        inode=seen.st_ino,
        size_bytes=seen.st_size,
        modified_ns=seen.st_mtime_ns,
        changed_ns=seen.st_ctime_ns,
    )
