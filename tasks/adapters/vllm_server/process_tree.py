"""The processes of one engine: who belongs to it, how much CPU they used, and their end.

A process is named by its pid and its start ticks, so a recycled pid is never mistaken for ours.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tasks.adapters.vllm_server.environment import TOKEN_VARIABLE

POLL_S = 0.1
KILL_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """A process: its pid and its start in clock ticks since boot (/proc/<pid>/stat, field 22)."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnd:
    """How a tree ended: pids that got SIGTERM, those that needed SIGKILL, those that survived."""

    terminated: tuple[int, ...]
    killed: tuple[int, ...]
    survivors: tuple[int, ...]


def boot_id() -> str:
    """Return the identifier of the running boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def process_name(pid: int) -> ProcessName | None:
    """Return the name of a live process; None for one that is gone or only waits to be reaped."""
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return ProcessName(pid=pid, start_ticks=int(fields[19]))


def lives(name: ProcessName) -> bool:
    """Tell whether exactly this process still runs."""
    return process_name(name.pid) == name


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat after the command's name: [0] is the state."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return text.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTree:
    """The processes of one engine: its leader (None before it is known) and the tree's token."""

    leader: ProcessName | None
    token: str

    def members(self) -> tuple[psutil.Process, ...]:
        """Return the live processes of the tree.

        They are the leader's descendants, those of its session while the leader's pid has not
        been taken over, and those whose environment carries the token.
        """
        family = {process.pid for process in self._descendants()}
        session = self._session()
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            if process.pid == os.getpid() or process_name(process.pid) is None:
                continue
            if process.pid in family or _in_session(process.pid, session) or self._marked(process):
                found.append(process)
        return tuple(found)

    def cpu_s(self) -> float | None:
        """Return CPU seconds used so far by the leader and its descendants, None if none lives."""
        total: float | None = None
        for process in self._descendants():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total = (total or 0.0) + times.user + times.system
        return total

    def end(self, *, timeout_s: float, reap: Callable[[], object] = lambda: None) -> TreeEnd:
        """Send SIGTERM, wait up to timeout_s, send SIGKILL to the rest and wait again.

        ``reap`` is called while waiting; the leader's parent collects its exit code there.
        """
        asked = self.members()
        self._terminate(asked)
        rest = self._wait(asked, timeout_s, reap)
        killed = [process.pid for process in rest]
        deadline = time.monotonic() + KILL_WAIT_S
        while rest and time.monotonic() < deadline:
            for process in rest:
                with suppress(psutil.Error):
                    process.kill()
            rest = self._wait(rest, 0.5, reap)
            killed += [process.pid for process in rest if process.pid not in killed]
        return TreeEnd(
            terminated=tuple(process.pid for process in asked),
            killed=tuple(killed),
            survivors=tuple(process.pid for process in rest),
        )

    def _terminate(self, asked: tuple[psutil.Process, ...]) -> None:
        """Ask the leader's process group at once, then those who are not in it."""
        group: int | None = None
        if self.leader is not None and lives(self.leader):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader.pid, signal.SIGTERM)
                group = self.leader.pid
        for process in asked:
            with suppress(psutil.Error, ProcessLookupError):
                if group is None or os.getpgid(process.pid) != group:
                    process.terminate()

    def _wait(
        self,
        known: tuple[psutil.Process, ...],
        timeout_s: float,
        reap: Callable[[], object],
    ) -> tuple[psutil.Process, ...]:
        """Wait for the known ones, then look once more for any that came since."""
        deadline = time.monotonic() + timeout_s
        while True:
            reap()
            known = tuple(process for process in known if _runs(process))
            over = time.monotonic() >= deadline
            if over or not known:
                known = self.members()
            if over or not known:
                return known
            time.sleep(POLL_S)

    def _descendants(self) -> tuple[psutil.Process, ...]:
        if self.leader is None or not lives(self.leader):
            return ()
        try:
            leader = psutil.Process(self.leader.pid)
            return (leader, *leader.children(recursive=True))
        except psutil.Error:
            return ()

    def _session(self) -> int | None:
        """Return the leader's session id, None when its pid now names another process.

        The kernel gives a pid to nobody else while a session of that number has members.
        """
        if self.leader is None:
            return None
        now = _stat(self.leader.pid)
        taken_over = now is not None and int(now[19]) != self.leader.start_ticks
        return None if taken_over else self.leader.pid

    def _marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(TOKEN_VARIABLE) == self.token
        except (psutil.Error, OSError):
            return False


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process_name(process.pid) is not None


def _in_session(pid: int, session: int | None) -> bool:
    if session is None:
        return False
    try:
        return os.getsid(pid) == session
    except (ProcessLookupError, PermissionError):
        return False
