"""What belongs to a run: its files, its long texts, and one hash over all of it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from tasks.domain.errors import StorageError
from tasks.domain.run_record import RunRecord

LONG_VALUES_FOLDER = "long_values"


def artifact_files(
    record: RunRecord, runs: Sequence[RunRecord], root: Path
) -> tuple[tuple[Path, str], ...] | None:
    """Return (file, path within the run) of a run's folder, None where the folder is missing.

    Folders that other runs of the study name are theirs: a parent may name ``.`` and does not
    get its trials' files a second time. Links are not followed out of the study's folder.

    Raises:
        StorageError: ARTIFACT_PATH if the folder lies outside the study's folder.
    """
    if record.artifacts is None:
        return ()
    top = root.resolve()
    folder = (top / record.artifacts).resolve()
    if not folder.is_relative_to(top):
        raise StorageError(
            f"run {record.name!r} names artifacts={record.artifacts!r}, outside the study's folder "
            f"{root}; a folder inside it is needed",
            code="ARTIFACT_PATH",
        )
    if not folder.is_dir():
        return None
    taken = {(top / run.artifacts).resolve() for run in runs if run.artifacts is not None}
    others = {path for path in taken if path != folder and path.is_relative_to(folder)}
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.resolve().is_relative_to(top) and others.isdisjoint(path.parents)
    ]
    return tuple((path, path.relative_to(folder).as_posix()) for path in files)


def content_sha256(record: RunRecord, files: Sequence[tuple[Path, str]]) -> str:
    """Return the hash of a record and its files' bytes; equal means nothing is left to write."""
    digest = hashlib.sha256(json.dumps(asdict(record), sort_keys=True).encode())
    for path, name in files:
        with path.open("rb") as file:
            digest.update(f"\0{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()


def fitting(
    pairs: Sequence[tuple[str, str]], *, limit: int
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return pairs whose values fit the store, and (artifact path, text) of those that did not.

    A value over ``limit`` characters is replaced by its SHA-256 and the artifact that holds it.
    """
    short: list[tuple[str, str]] = []
    long: list[tuple[str, str]] = []
    for name, value in pairs:
        if len(value) <= limit:
            short.append((name, value))
            continue
        path = str(PurePosixPath(LONG_VALUES_FOLDER) / f"{name.replace('/', '_')}.txt")
        digest = hashlib.sha256(value.encode()).hexdigest()
        short.append((name, f"sha256:{digest} (artifact {path})"))
        long.append((path, value))
    return tuple(short), tuple(long)
