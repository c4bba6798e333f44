"""One measurement at a time on one device: an OS lock that dies with its holder."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.domain.errors import TransientError

_POLL_S = 0.5


class DeviceLockedError(TransientError):
    """Another run measures on this device and did not finish in time."""

    code = "GPU_LOCKED"


@contextmanager
def device_lock(lock_dir: Path, device: str, *, wait_s: float, purpose: str) -> Iterator[None]:
    """Hold the device's lock for the time of the context.

    The lock is flock on a file, so it ends with the process however that ends. The file names
    its holder for the message of those who wait.

    Raises:
        DeviceLockedError: if it is not free within ``wait_s`` seconds; names the holder.
    """
    lock_dir.mkdir(parents=True, exist_ok=True)
    path = lock_dir / f"{device}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 4096, 0).decode(errors="replace") or "unknown"
                raise DeviceLockedError(
                    f"device {device} is in use by {holder}; waited {wait_s:.0f} s; wait for that "
                    f"run to end or stop it, then try again ({path})"
                )
            time.sleep(_POLL_S)
        holder = json.dumps({"pid": os.getpid(), "purpose": purpose})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
