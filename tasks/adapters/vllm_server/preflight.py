"""What must hold before an engine is started: the checkpoint, the interpreter, the directories."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.errors import InfeasibleError, StorageError

MIN_FREE_BYTES = 64 << 20
"""Free disk below which a start is refused: the log alone may take some of it."""


def check_checkpoint(launch: EngineLaunch) -> None:
    """Return if the checkpoint's directory and the interpreter are there.

    Raises:
        InfeasibleError: MODEL_NOT_FOUND or MISSING_MODULE.
    """
    if not (Path(launch.model_dir) / "config.json").is_file():
        raise InfeasibleError(
            f"model_dir={launch.model_dir!r} has no config.json; give the directory that holds "
            "the checkpoint's config.json and weights",
            code="MODEL_NOT_FOUND",
        )
    if shutil.which(launch.python) is None:
        raise InfeasibleError(
            f"python={launch.python!r} is not an executable file; give the interpreter of the "
            "environment that holds vLLM",
            code="MISSING_MODULE",
        )


def check_directory(directory: Path) -> None:
    """Create a directory and see that it takes a file.

    Raises:
        StorageError: it is the repository itself, cannot be written, or its disk is full.
    """
    if (directory / "mlflow").is_dir():
        raise StorageError(
            f"{directory} holds a folder mlflow, which hides the library of that name from an "
            "engine started there: choose another directory",
            code="WORKDIR_IN_REPOSITORY",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        probe.write_bytes(b"1")
        probe.unlink()
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be written: {error}; choose a directory that can"
        ) from error
    if free < MIN_FREE_BYTES:
        raise StorageError(
            f"{directory} has {free >> 20} MiB free, {MIN_FREE_BYTES >> 20} MiB are needed: "
            "free some disk",
            code="DISK_FULL",
        )


@contextmanager
def one_start_at_a_time(lease_dir: Path) -> Iterator[None]:
    """Hold the directory's lock, so that two starts do not take one port."""
    with (lease_dir / "start.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
