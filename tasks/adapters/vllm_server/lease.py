"""The record on disk that proves which processes are ours, and the sweep of what was left.

Written before the engine's process exists and again with its pid; removed when its tree is gone.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.adapters.vllm_server.process_tree import (
    EngineTree,
    ProcessName,
    boot_id,
    lives,
    process_name,
)
from tasks.domain.errors import StorageError

SWEEP_STOP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One engine and its owner.

    token: 128 random bits that every process of the engine carries in its environment.
    control_dir: where its live knobs are moved, None where it has none.
    pid, pgid, start_ticks: None until the engine's process is there.
    """

    token: str
    boot_id: str
    owner_pid: int
    owner_start_ticks: int
    port: int
    served_name: str
    argv_sha256: str
    log_path: str
    control_dir: str | None = None
    pid: int | None = None
    pgid: int | None = None
    start_ticks: int | None = None

    @property
    def owner(self) -> ProcessName:
        """The process that started the engine."""
        return ProcessName(pid=self.owner_pid, start_ticks=self.owner_start_ticks)

    @property
    def tree(self) -> EngineTree:
        """The engine's processes."""
        if self.pid is None or self.start_ticks is None:
            return EngineTree(leader=None, token=self.token)
        leader = ProcessName(pid=self.pid, start_ticks=self.start_ticks)
        return EngineTree(leader=leader, token=self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A lease that a sweep found, and what was done.

    action: ``ended`` (its owner was gone; the tree was ended), ``removed`` (nothing of it was
    left), ``untouched`` (its owner lives), ``unproven`` (the record does not prove that what
    runs is ours), ``unreadable``. survivors: pids that outlived SIGKILL.
    """

    path: str
    action: str
    reason: str
    pid: int | None = None
    port: int | None = None
    survivors: tuple[int, ...] = ()


def argv_sha256(argv: Sequence[str]) -> str:
    """Return a hash that names a command line without showing it."""
    return hashlib.sha256("\0".join(argv).encode()).hexdigest()


def lease_path(lease_dir: Path, token: str) -> Path:
    """Return where an engine's lease lies."""
    return lease_dir / f"engine-{token[:16]}.json"


def control_path(path: Path) -> Path:
    """Return where the control folder of a lease's engine lies."""
    return path.with_suffix(".control")


def remove_lease(path: Path) -> None:
    """Remove the record of an engine that is gone, and its control folder."""
    path.unlink(missing_ok=True)
    shutil.rmtree(control_path(path), ignore_errors=True)


def write_lease(path: Path, lease: Lease) -> None:
    """Write the record so that a reader sees the old one or the new one, never half of it.

    Raises:
        StorageError: the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".lease-", delete=False, encoding="utf-8"
        ) as handle:
            json.dump(asdict(lease), handle)
            handle.flush()
            os.fsync(handle.fileno())
        Path(handle.name).replace(path)
    except OSError as error:
        raise StorageError(
            f"lease {path} cannot be written: {error}; free the disk or choose another lease_dir"
        ) from error


def read_lease(path: Path) -> Lease | None:
    """Return the record, or None where the file is gone or is not one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Lease(**data)
    except (OSError, ValueError, TypeError):
        return None


def leases(lease_dir: Path) -> tuple[tuple[Path, Lease], ...]:
    """Return every readable lease of a directory."""
    found = ((path, read_lease(path)) for path in sorted(lease_dir.glob("engine-*.json")))
    return tuple((path, lease) for path, lease in found if lease is not None)


def sweep_leftovers(lease_dir: Path) -> tuple[Leftover, ...]:
    """End what dead owners left, and only that; report every lease that was found.

    An engine is ended when its record is of this boot, its owner is gone, and either its pid and
    start ticks name a live process or a process carries its token. A record of nothing is removed.
    """
    return tuple(_sweep(path) for path in sorted(lease_dir.glob("engine-*.json")))


def _sweep(path: Path) -> Leftover:
    lease = read_lease(path)
    if lease is None:
        return Leftover(path=str(path), action="unreadable", reason="not a lease; left as it is")
    if lease.boot_id != boot_id():
        remove_lease(path)
        return _leftover(path, lease, "removed", "the machine was started again since")
    if lives(lease.owner):
        return _leftover(path, lease, "untouched", f"its owner pid={lease.owner_pid} lives")
    now = None if lease.pid is None else process_name(lease.pid)
    tree = lease.tree
    if now is not None and now.start_ticks != lease.start_ticks:
        # Somebody else has the pid; only the token can still prove a process to be ours.
        tree = EngineTree(leader=None, token=lease.token)
        if not tree.members():
            remove_lease(path)
            return _leftover(path, lease, "unproven", "its pid now names another process")
    if not tree.members():
        remove_lease(path)
        return _leftover(path, lease, "removed", "nothing of it runs")
    end = tree.end(timeout_s=SWEEP_STOP_S)
    if not end.survivors:
        remove_lease(path)
    return Leftover(
        path=str(path),
        action="ended",
        reason=f"its owner pid={lease.owner_pid} is gone",
        pid=lease.pid,
        port=lease.port,
        survivors=end.survivors,
    )


def _leftover(path: Path, lease: Lease, action: str, reason: str) -> Leftover:
    return Leftover(path=str(path), action=action, reason=reason, pid=lease.pid, port=lease.port)
