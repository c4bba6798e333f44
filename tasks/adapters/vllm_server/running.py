"""An engine that serves: what it is, whether it still is that, and its stop."""

import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from types import TracebackType

from tasks.adapters.vllm_server.control import ControlClient
from tasks.adapters.vllm_server.engine_log_file import log_text
from tasks.adapters.vllm_server.guardian import stop_guardian
from tasks.adapters.vllm_server.lease import remove_lease
from tasks.adapters.vllm_server.ports import answers, listeners
from tasks.adapters.vllm_server.process_tree import EngineTree
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_facts import EngineFacts
from tasks.domain.engine_failures import EngineFailure, failure_from_log
from tasks.domain.errors import MeasurementInvalidError

LAST_WORDS_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """How an engine was stopped.

    exit_code: of its main process, negative for a signal, None where it could not be collected.
    terminated, killed, survivors: pids that got SIGTERM, that needed SIGKILL, that live on.
    port_free: whether a connect to the port is refused afterwards. already: it had been stopped.
    """

    exit_code: int | None
    terminated: tuple[int, ...]
    killed: tuple[int, ...]
    survivors: tuple[int, ...]
    port_free: bool
    seconds: float
    already: bool = False

    @property
    def clean(self) -> bool:
        """Whether nothing of the engine is left."""
        return self.port_free and not self.survivors


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcesses:
    """What must be ended and removed when an engine stops."""

    process: Popen[bytes]
    guardian: Popen[bytes]
    tree: EngineTree
    lease_file: Path
    host: str
    port: int

    def end(self, *, timeout_s: float) -> StopReport:
        """End the tree, then the guardian, and remove the lease when nothing survived."""
        began = time.monotonic()
        end = self.tree.end(timeout_s=timeout_s, reap=self.process.poll)
        exit_code = self.process.poll()
        if not end.survivors:
            # The lease and the guardian stay while anything of the engine lives.
            remove_lease(self.lease_file)
            stop_guardian(self.guardian)
        return StopReport(
            exit_code=exit_code,
            terminated=end.terminated,
            killed=end.killed,
            survivors=end.survivors,
            port_free=not answers(self.host, self.port),
            seconds=time.monotonic() - began,
        )


class RunningEngine:
    """An engine that answered a real completion; stop it, or leave its ``with`` block."""

    def __init__(
        self,
        *,
        processes: EngineProcesses,
        endpoint: Endpoint,
        facts: EngineFacts,
        log_path: Path,
        stop_timeout_s: float,
    ) -> None:
        """Keep what the start found out."""
        self.endpoint = endpoint
        self.facts = facts
        self.log_path = log_path
        self._processes = processes
        self._stop_timeout_s = stop_timeout_s
        self._lock = threading.Lock()
        self._report: StopReport | None = None

    def __enter__(self) -> "RunningEngine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Pid of the engine's main process."""
        return self._processes.process.pid

    def pids(self) -> tuple[int, ...]:
        """Return the pids of the whole tree that live now, for device and CPU accounting."""
        return tuple(process.pid for process in self._processes.tree.members())

    def is_alive(self) -> bool:
        """Tell whether the main process runs and was not stopped by us."""
        return self._report is None and self._processes.process.poll() is None

    def failure(self) -> EngineFailure | None:
        """Return why the engine ended by itself, or None while it lives or if we stopped it."""
        if self._report is not None or self.is_alive():
            return None
        exit_code = self._processes.process.poll()
        return failure_from_log(log_text(self.log_path), exit_code=exit_code)

    def dying_words(self) -> EngineFailure | None:
        """Wait a few seconds for an engine that has begun to end, then return its failure.

        Call it when requests broke off: the main process outlives its workers for a moment.
        """
        deadline = time.monotonic() + LAST_WORDS_S
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.failure()

    def verify_identity(self) -> None:
        """Return if what answers on the port is still this engine alone.

        Raises:
            MeasurementInvalidError: another process listens there, or the name is not served.
        """
        pids = listeners(self._processes.port)
        members = {process.pid for process in self._processes.tree.members()}
        strangers = sorted(str(pid) for pid in pids - members)
        if strangers or not pids:
            raise MeasurementInvalidError(
                f"port={self._processes.port} is listened on by pid={strangers or 'nobody'}, not "
                f"only by the engine pid={self.pid}; discard what was measured there",
                code="SERVER_IDENTITY_MISMATCH",
            )
        with ControlClient(self.endpoint.url) as client:
            names = [model.name for model in client.models() or ()]
        if self.endpoint.model not in names:
            raise MeasurementInvalidError(
                f"{self.endpoint.url} serves {names}, not {self.endpoint.model!r}; discard what "
                "was measured there",
                code="SERVER_IDENTITY_MISMATCH",
            )

    def stop(self) -> StopReport:
        """End the engine and all its processes; a second call returns the first report."""
        with self._lock:
            if self._report is not None and self._report.clean:
                return replace(self._report, already=True)
            self._report = self._processes.end(timeout_s=self._stop_timeout_s)
            return self._report
