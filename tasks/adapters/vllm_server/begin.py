"""Bringing the engine's process into the world: port, lease, guardian, process, in this order.

At every moment in between, somebody who lives on can find and end what is there already.
"""

import os
import secrets
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.adapters.vllm_server.environment import engine_environment
from tasks.adapters.vllm_server.guardian import start_guardian, stop_guardian
from tasks.adapters.vllm_server.lease import (
    Lease,
    argv_sha256,
    control_path,
    lease_path,
    remove_lease,
    write_lease,
)
from tasks.adapters.vllm_server.ports import ensure_free, free_port
from tasks.adapters.vllm_server.preflight import one_start_at_a_time
from tasks.adapters.vllm_server.process_tree import EngineTree, boot_id, process_name
from tasks.adapters.vllm_server.running import EngineProcesses
from tasks.domain.engine_launch import EngineLaunch, command_line
from tasks.domain.errors import StorageError
from tasks.domain.hardware import Flavour

CPU_NICENESS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunEngine:
    """An engine whose process is there and whose answer is waited for."""

    launch: EngineLaunch
    port: int
    processes: EngineProcesses
    log_path: Path
    control_dir: Path | None

    @property
    def url(self) -> str:
        """Base URL of the engine."""
        return f"http://{self.launch.host}:{self.port}"


def begin_engine(launch: EngineLaunch, *, workdir: Path, lease_dir: Path) -> BegunEngine:
    """Start the engine's process and return without waiting for it.

    Raises:
        PortBusyError: somebody has the port.
        StorageError: the lease or the log cannot be written.
        InvalidParameterError: a value cannot be put on the command line.
    """
    token = secrets.token_hex(16)
    path = lease_path(lease_dir, token)
    control_dir = control_path(path).absolute() if launch.live_knobs else None
    log_path = workdir / "engine.log"
    environment = engine_environment(
        launch,
        inherited=os.environ,
        token=token,
        cpus=os.sched_getaffinity(0),
        control_dir=control_dir,
    )
    with one_start_at_a_time(lease_dir):
        port = launch.port
        if port is None:
            port = free_port(launch.host, lease_dir=lease_dir)
        ensure_free(launch.host, port, lease_dir=lease_dir)
        argv = command_line(replace(launch, port=port))
        lease = _lease(
            launch, token=token, port=port, argv=argv, log_path=log_path, control_dir=control_dir
        )
        write_lease(path, lease)
    guardian: subprocess.Popen[bytes] | None = None
    try:
        guardian = start_guardian(path)
        process = _spawn(argv, workdir=workdir, log_path=log_path, environment=environment)
        if launch.flavour is Flavour.CPU:
            _give_way(process.pid)
        leader = process_name(process.pid)
        if leader is not None:
            ticks = leader.start_ticks
            write_lease(path, replace(lease, pid=leader.pid, pgid=leader.pid, start_ticks=ticks))
    except BaseException:
        EngineTree(leader=None, token=token).end(timeout_s=launch.stop_timeout_s)
        remove_lease(path)
        if guardian is not None:
            stop_guardian(guardian)
        raise
    processes = EngineProcesses(
        process=process,
        guardian=guardian,
        tree=EngineTree(leader=leader, token=token),
        lease_file=path,
        host=launch.host,
        port=port,
    )
    return BegunEngine(
        launch=launch, port=port, processes=processes, log_path=log_path, control_dir=control_dir
    )


def _lease(
    launch: EngineLaunch,
    *,
    token: str,
    port: int,
    argv: tuple[str, ...],
    log_path: Path,
    control_dir: Path | None,
) -> Lease:
    owner = process_name(os.getpid())
    return Lease(
        token=token,
        boot_id=boot_id(),
        owner_pid=os.getpid(),
        owner_start_ticks=owner.start_ticks if owner is not None else 0,
        port=port,
        served_name=launch.served_name,
        argv_sha256=argv_sha256(argv),
        log_path=str(log_path),
        control_dir=None if control_dir is None else str(control_dir),
    )


def _give_way(pid: int) -> None:
    """Lower the engine's priority: it computes on every core, and a late client measures itself.

    Children and threads inherit it; it costs the engine nothing while nobody else computes. Where
    the kernel groups processes by session (sched(7), autogroup), niceness counts only inside a
    group, so the group of the engine's own session gives way too.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, CPU_NICENESS)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(CPU_NICENESS), encoding="ascii")


def _spawn(
    argv: tuple[str, ...], *, workdir: Path, log_path: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start the engine in a session of its own with its output in a file, never in a pipe."""
    try:
        with log_path.open("wb") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=workdir,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise StorageError(
            f"the engine cannot be started with log {log_path}: {error}; see that the interpreter "
            f"{argv[0]!r} runs and the directory can be written"
        ) from error
