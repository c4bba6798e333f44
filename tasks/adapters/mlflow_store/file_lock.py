"""One writer at a time: an flock that ends with its process, so a crash leaves nothing behind."""

import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.domain.errors import TrackerUnavailableError

_POLL_S = 0.05


def recording_lock(lock_dir: Path, uri: str) -> Path:
    """Return the lock file of the one process that may record to a store."""
    return lock_dir / f"mlflow-{hashlib.sha256(uri.encode()).hexdigest()[:12]}.lock"


@contextmanager
def hold_lock(path: Path, *, timeout_s: float = 300.0) -> Iterator[None]:
    """Hold a lock file, creating it and its folder where they are missing.

    Raises:
        TrackerUnavailableError: TRACKER_LOCKED if another process holds it for ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise TrackerUnavailableError(
            f"the lock {path} cannot be opened ({error}); make its folder writable",
            code="TRACKER_LOCKED",
        ) from error
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise TrackerUnavailableError(
                        f"another process has held the lock {path} for {timeout_s:.0f} s; "
                        f"`fuser {path}` names it; wait for it or end it",
                        code="TRACKER_LOCKED",
                    ) from error
                time.sleep(_POLL_S)
        yield
