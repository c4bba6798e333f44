"""Publishes a folder all at once: made beside its place, described by a manifest, then renamed.

A folder that has its name is therefore complete; what a crash leaves has another name and is
removed by the next run.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tasks.adapters.checkpoints.hash_memo import HashMemo
from tasks.adapters.checkpoints.hashing import checkpoint_sha256, file_sha256, folder_files
from tasks.domain.errors import ConfigError, StorageError

MANIFEST = "retune-manifest.json"
_PARTIAL = ".partial-"


def read_manifest(folder: Path) -> dict[str, object] | None:
    """Return the manifest of a complete folder of ours whose files are all as they were.

    None if the folder does not exist or a file is missing or changed.

    Raises:
        ConfigError: if the folder exists, is not empty and has no manifest: it is not ours.
    """
    path = folder / MANIFEST
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not path.is_file():
        raise ConfigError(
            f"{folder} exists and has no {MANIFEST}, so it was not made by this product; "
            "give another folder or move it away"
        )
    manifest = json.loads(path.read_text(encoding="utf-8"))
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict):
        return None
    for name, digest in files.items():
        if not (folder / name).is_file() or file_sha256(folder / name) != digest:
            return None
    return dict(manifest)


def served_sha256(folder: Path, memo: HashMemo) -> str | None:
    """Return the hash by which sets name the checkpoint in a folder, None where none is there.

    A folder of ours says it in its manifest, a dequantized one that of the packed weights; its
    files are not read again: an engine already serves from it.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = None
    try:
        if isinstance(manifest, dict) and "sha256" in manifest:
            return str(manifest.get("packed_sha256", manifest["sha256"]))
        return checkpoint_sha256(folder, sha256_of=memo.sha256)
    except OSError:
        return None


@contextmanager
def publishing(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside ``folder`` to fill; the caller seals and the exit cleans up.

    Raises:
        StorageError: if the disk is full or the place cannot be written.
    """
    partial = folder.with_name(f"{folder.name}{_PARTIAL}{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        partial.mkdir()
        yield partial
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise StorageError(
            f"{folder} could not be written: {error.strerror}; free space or make it writable"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def seal(partial: Path, folder: Path, facts: Mapping[str, object]) -> dict[str, object]:
    """Write the manifest with the hash of every file, and give the folder its name.

    A folder of ours at that name that is damaged or was made of something else gives way; where
    another process published the same first, its folder stays and this one is dropped.
    """
    for path in folder_files(partial):
        path.chmod(0o644)  # the libraries write private files; an engine may run as someone else
    files = {str(p.relative_to(partial)): file_sha256(p) for p in folder_files(partial)}
    manifest: dict[str, object] = {"format": 1, **facts, "files": files}
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    with (partial / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if folder.exists():
        theirs = read_manifest(folder)
        if theirs is not None and theirs.get("inputs") == manifest.get("inputs"):
            return theirs
        shutil.rmtree(folder)
    partial.rename(folder)
    return manifest


def _remove_leftovers(folder: Path) -> None:
    """Remove partial folders of processes that no longer run."""
    for path in folder.parent.glob(f"{folder.name}{_PARTIAL}*"):
        owner = path.name.rpartition("-")[2]
        if not owner.isdigit() or not Path(f"/proc/{owner}").exists():
            shutil.rmtree(path, ignore_errors=True)
