"""Waiting for an engine: it lives, its own tree listens, it serves the name, it completes.

``/health`` alone is not asked: an engine without a needed kernel is healthy until its first
request kills it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from subprocess import Popen

import httpx

from tasks.adapters.vllm_server.control import CompletionReply, ControlClient, ServedModel
from tasks.adapters.vllm_server.engine_log_file import LogFollower
from tasks.adapters.vllm_server.ports import answers, listeners
from tasks.adapters.vllm_server.process_tree import EngineTree
from tasks.domain.engine_log_phases import EnginePhase
from tasks.domain.engine_progress import StartBudget, StartVerdict
from tasks.domain.errors import PortBusyError

POLL_S = 0.25
LAST_WORDS_S = 15.0
"""Seconds that an engine whose first request failed is given to end and to say why."""


class StartEndedError(Exception):
    """The wait is over without an engine; says how it ended, the log says why.

    code: None where the process ended or refused (the log decides), else STARTUP_TIMEOUT or
    ENGINE_HUNG.
    """

    def __init__(self, what: str, *, code: str | None = None) -> None:
        """Keep what was seen."""
        super().__init__(what)
        self.what = what
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The engine answers; startup_s counts from the start of its process."""

    model: ServedModel
    version: str | None
    startup_s: float


@dataclass(slots=True, kw_only=True)
class StartWatch:
    """What is watched while an engine starts."""

    process: Popen[bytes]
    tree: EngineTree
    log: LogFollower
    budget: StartBudget
    url: str
    host: str
    port: int
    served_name: str
    on_phase: Callable[[EnginePhase], None] | None = None
    started_s: float = field(default_factory=time.monotonic)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    def tell(self, phase: str) -> None:
        """Report that a phase was entered."""
        if self.on_phase is not None:
            self.on_phase(EnginePhase(name=phase, at_s=self.now_s))

    def tick(self, *, doing: str) -> None:
        """Look once: read the log, see that the process lives and that something moves.

        Raises:
            StartEndedError: it does not, or nothing does.
        """
        for phase in self.log.new_phases():
            self.tell(phase)
        exit_code = self.process.poll()
        if exit_code is not None:
            raise StartEndedError(f"its process ended with exit_code={exit_code} while {doing}")
        verdict = self.budget.observe(
            self.now_s, log_lines=self.log.telling_lines, cpu_s=self.tree.cpu_s()
        )
        if verdict is StartVerdict.WAIT:
            return
        hung = doing == "answering its first completion"
        if verdict is StartVerdict.OVER_LIMIT:
            seen = f"startup_limit_s={self.budget.limit_s:.0f} is over"
        else:
            seen = f"neither log nor CPU time moved for {self.budget.timeout_s:.0f} s"
        raise StartEndedError(
            f"{seen} while {doing}; last phase {self.log.phase!r}, last log line "
            f"{self.log.last_line[:200]!r}",
            code="ENGINE_HUNG" if hung else "STARTUP_TIMEOUT",
        )


def wait_until_ready(watch: StartWatch) -> Ready:
    """Return when the engine has answered one real completion.

    Raises:
        StartEndedError: the process ended, refused the completion, or nothing moved in time.
        PortBusyError: another process listens on the port.
    """
    watch.tell("process")
    with ControlClient(watch.url) as client:
        model = _served(watch, client)
        watch.tell("first completion")
        _first_completion(watch)
        watch.tick(doing="answering its first completion")
        version = client.version()
    startup_s = watch.now_s
    watch.tell("ready")
    return Ready(model=model, version=version, startup_s=startup_s)


def _served(watch: StartWatch, client: ControlClient) -> ServedModel:
    """Wait for the listener and return the served model of our name."""
    while True:
        watch.tick(doing="starting")
        if answers(watch.host, watch.port):
            check_listeners(listeners(watch.port), watch.tree, watch.port)
            for model in client.models() or ():
                if model.name == watch.served_name:
                    return model
        time.sleep(POLL_S)


def check_listeners(pids: frozenset[int | None], tree: EngineTree, port: int) -> None:
    """Return if every listener of the port belongs to the tree.

    Raises:
        PortBusyError: one does not.
    """
    members = {process.pid for process in tree.members()}
    strangers = pids - members
    if strangers:
        raise PortBusyError(
            f"port={port} is listened on by pid={sorted(map(str, strangers))}, which is not of "
            f"our engine's tree {sorted(members)}: end that process or choose another port"
        )


class _FirstCompletion(threading.Thread):
    """One completion in a thread of its own, so that the wait goes on watching the engine."""

    def __init__(self, url: str, model: str, *, timeout_s: float) -> None:
        super().__init__(name="first-completion", daemon=True)
        self._url = url
        self._model = model
        self._timeout_s = timeout_s
        self.reply: CompletionReply | None = None
        self.error: str | None = None

    def run(self) -> None:
        try:
            with ControlClient(self._url) as client:
                self.reply = client.complete(self._model, timeout_s=self._timeout_s)
        except httpx.HTTPError as error:
            self.error = f"{type(error).__name__}: {error}"


def _first_completion(watch: StartWatch) -> None:
    doing = "answering its first completion"
    request = _FirstCompletion(watch.url, watch.served_name, timeout_s=watch.budget.limit_s)
    request.start()
    while request.is_alive():
        watch.tick(doing=doing)
        request.join(timeout=POLL_S)
    reply = request.reply
    if reply is not None and reply.status == httpx.codes.OK and reply.tokens > 0:
        return
    seen = request.error if reply is None else f"status={reply.status} body={reply.body!r}"
    deadline = time.monotonic() + LAST_WORDS_S
    while time.monotonic() < deadline:
        watch.tick(doing=doing)
        time.sleep(POLL_S)
    raise StartEndedError(f"its first completion failed: {seen}", code="FIRST_COMPLETION_FAILED")
