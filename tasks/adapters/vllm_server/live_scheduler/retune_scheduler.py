"""vLLM's scheduler with two knobs that turn while it runs; the engine loads this one file.

How: PYTHONPATH names this file's folder, RETUNE_CONTROL_DIR a folder of the engine's user alone
(0700), and the engine is started with ``--scheduler-cls retune_scheduler.RetuneScheduler``.
Standard library and vLLM only: the engine's environment holds none of the product's packages.

Moved live: how many sequences may run, and how many tokens a step may hold, up to the values that
the engine was started with. What vLLM sizes once by those (model runner buffers, CUDA graphs,
compiled shapes, the memory left for KV blocks, the encoder's budget, what /metrics tells of the
configuration) stays as it was started.
"""

import dataclasses
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRIED = {"0.24.0": "max_num_running_reqs", "0.32.0": "max_num_active_reqs"}
"""vLLM versions that were tried, and the attribute that caps admission there."""

SEQS, TOKENS = "max_num_seqs", "max_num_batched_tokens"
CONTROL_VARIABLE = "RETUNE_CONTROL_DIR"
SOCKET_NAME = "engine.sock"
DRAIN_POLL_S = 0.01
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES = 1 << 16


class Knobs:
    """The two values of one scheduler; every change falls between two of its steps.

    ``lock`` is held for the whole of each schedule() and for each change. The running requests
    only grow inside schedule(), so a cap that is not below them when it is set stays right, and
    an idle engine, which calls no schedule(), is changed at once.
    """

    def __init__(self, scheduler: Any, *, cap: str, least_tokens: int = 1) -> None:
        """Take the values that the scheduler starts with as the envelope."""
        self.lock = threading.Lock()
        self.draining = False
        self.change_id = 0
        self._scheduler = scheduler
        self._cap = cap
        self._least_tokens = least_tokens
        self.envelope = {
            SEQS: scheduler.max_num_running_reqs,
            TOKENS: scheduler.max_num_scheduled_tokens,
        }
        self.asked = self.in_force()

    def in_force(self) -> dict[str, int]:
        """Return the values that the next step will obey."""
        scheduler = self._scheduler
        return {SEQS: getattr(scheduler, self._cap), TOKENS: scheduler.max_num_scheduled_tokens}

    def ask(self, values: dict[str, Any]) -> tuple[int, dict[str, str]]:
        """Take new values and return their change's id, or why each that stands out is refused."""
        with self.lock:
            reasons = self._refusals(values)
            if not reasons:
                self.asked = {**self.asked, **values}
                self.change_id += 1
                self.settle()
            return self.change_id, reasons

    def settle(self) -> None:
        """Set the values as near to those asked for as the running requests allow.

        vLLM asserts that no more run than the cap says (0.24), so it sinks with the requests that
        end; none is admitted meanwhile. Each of them needs a token a step, so the budget never
        lies below the cap. Call it with the lock held.
        """
        scheduler = self._scheduler
        seqs = max(self.asked[SEQS], len(scheduler.running))
        tokens = max(self.asked[TOKENS], seqs)
        setattr(scheduler, self._cap, seqs)
        scheduler.max_num_scheduled_tokens = tokens
        self.draining = self.in_force() != self.asked

    def wait(self, change_id: int, wait_s: float) -> str:
        """Return ``applied``, ``pending`` when the time is over, or ``superseded`` by a later one.

        The drain is watched from here too: an engine whose requests were all aborted is idle.
        """
        deadline = time.monotonic() + wait_s
        while True:
            with self.lock:
                if self.change_id != change_id:
                    return "superseded"
                self.settle()
                if not self.draining:
                    return "applied"
            if time.monotonic() >= deadline:
                return "pending"
            time.sleep(DRAIN_POLL_S)

    def _refusals(self, values: dict[str, Any]) -> dict[str, str]:
        reasons = {}
        for name, value in values.items():
            most = self.envelope.get(name)
            if most is None:
                reasons[name] = f"{name} needs a restart: only {SEQS} and {TOKENS} move live"
            elif type(value) is not int or value < 1:
                reasons[name] = f"{name}={value!r} is not a whole number above 0"
            elif value > most:
                reasons[name] = f"{name}={value} needs a restart: this engine started with {most}"
        if reasons:
            return reasons
        asked = {**self.asked, **values}
        least = max(asked[SEQS], self._least_tokens)
        if asked[TOKENS] < least:
            text = f"{TOKENS}={asked[TOKENS]} is below {least}, the least this engine can step with"
            return {TOKENS: f"{text} at {SEQS}={asked[SEQS]}"}
        return {}


class LiveKnobs:
    """Mixed over vLLM's scheduler: waits between steps only while somebody changes a value."""

    vllm_version: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the scheduler, then open the channel; refuse what was not tried with it."""
        super().__init__(*args, **kwargs)
        config: Any = self.vllm_config  # type: ignore[attr-defined]
        _refuse_untried(config)
        self._knobs = Knobs(
            self, cap=TRIED[self.vllm_version], least_tokens=_least_tokens(self, config)
        )
        about = {
            "version": self.vllm_version,
            "model": _served_name(config),
            "pid": os.getpid(),
            "started_with": _plain_values(config),
        }
        open_channel(_control_dir(), lambda request: answer(request, self._knobs, about))

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule one step under the knobs' lock."""
        knobs = self._knobs
        with knobs.lock:
            if knobs.draining:
                knobs.settle()
            return super().schedule(*args, **kwargs)  # type: ignore[misc]


def __getattr__(name: str) -> Any:
    """Make the scheduler class when vLLM asks for it; the rest of this file needs no vLLM."""
    if name != "RetuneScheduler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm.version import __version__

    version = __version__.partition("+")[0]
    if version not in TRIED:
        raise _refusal(f"tried with vLLM {' and '.join(TRIED)}, not with {__version__}")
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    return type(name, (LiveKnobs, AsyncScheduler), {"vllm_version": version})


def answer(request: Any, knobs: Knobs, about: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to one request: ``{"values": {...}, "wait_s": 30}``, or without values.

    outcome: ``state`` (nothing was asked), ``applied``, ``pending`` (it drains on by itself),
    ``superseded`` or ``refused``. id counts the changes that were taken.
    """
    values = request.get("values")
    outcome, reasons = "state", dict[str, str]()
    if values is not None:
        change_id, reasons = knobs.ask(values)
        outcome = "refused" if reasons else knobs.wait(change_id, request.get("wait_s", 0.0))
    with knobs.lock:
        return {
            **about,
            "outcome": outcome,
            "reasons": reasons,
            "id": knobs.change_id,
            "in_force": knobs.in_force(),
            "asked": knobs.asked,
            "envelope": knobs.envelope,
        }


def open_channel(folder: str, reply: Callable[[Any], dict[str, Any]]) -> None:
    """Listen on a socket in the folder, in a thread that sleeps until somebody connects.

    The folder's permissions say who may; a lock in it keeps a second engine out.
    """
    directory = _open_own(folder)
    lock = os.open("engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise _refusal(
            f"{CONTROL_VARIABLE}={folder} already has a live engine: give each a folder of its own "
            "(several engine cores of one server cannot be moved)"
        ) from error
    # A path through the descriptor: a socket's own path may have 107 bytes at most.
    path = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=_accept, args=(listener, reply), name="retune", daemon=True).start()


def _accept(listener: socket.socket, reply: Callable[[Any], dict[str, Any]]) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(connection, reply), daemon=True).start()


def _serve(connection: socket.socket, reply: Callable[[Any], dict[str, Any]]) -> None:
    with connection, connection.makefile("rb") as lines:
        connection.settimeout(REQUEST_TIMEOUT_S)
        try:
            request = json.loads(lines.readline(REQUEST_BYTES))
            connection.sendall(json.dumps(reply(request)).encode() + b"\n")
        except (OSError, ValueError, TypeError, AttributeError):
            return  # it hung up, or spoke no request: the closed connection tells it


def _open_own(folder: str) -> int:
    """Return a descriptor of the folder, made if absent; refuse one that others may enter."""
    try:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(f"{CONTROL_VARIABLE}={folder} cannot be used: {error}") from error
    seen = os.fstat(directory)
    if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise _refusal(f"{CONTROL_VARIABLE}={folder} must be the engine user's own, mode 0700")
    return directory


def _control_dir() -> str:
    folder = os.environ.get(CONTROL_VARIABLE)
    if not folder:
        raise _refusal(f"needs {CONTROL_VARIABLE}, a folder of mode 0700 for its socket")
    return folder


def _refuse_untried(config: Any) -> None:
    """Raise for what plans steps by the start values, so that a live change would not be true."""
    scheduler, parallel = config.scheduler_config, config.parallel_config
    adaptive = "long_prefill_token_threshold_adaptive"
    untried = {
        "data_parallel_size": parallel.data_parallel_size > 1,
        "pipeline_parallel_size": parallel.pipeline_parallel_size > 1,
        "speculative_config": config.speculative_config is not None,
        "disable_chunked_mm_input": scheduler.disable_chunked_mm_input,
        adaptive: getattr(scheduler, adaptive, False),
    }
    found = [name for name, there in untried.items() if there]
    if found:
        raise _refusal(f"not tried together with {', '.join(found)}")


def _least_tokens(scheduler: Any, config: Any) -> int:
    """Return the budget below which a prompt could wait for ever."""
    least = 1
    if not config.scheduler_config.enable_chunked_prefill:
        least = config.model_config.max_model_len
    if getattr(scheduler, "need_mamba_block_aligned_split", False):
        least = max(least, config.cache_config.block_size)
    return least


def _refusal(why: str) -> RuntimeError:
    return RuntimeError(f"retune_scheduler: {why}; correct it, or start without --scheduler-cls")


def _served_name(config: Any) -> str:
    name = config.model_config.served_model_name
    return name[0] if isinstance(name, list) else str(name)


def _plain_values(config: Any) -> dict[str, Any]:
    """Return the engine's configuration as plain values by vLLM's names; unset ones are absent."""
    found: dict[str, Any] = {"kv_cache_dtype": config.cache_config.cache_dtype}
    parts = ("model", "cache", "scheduler", "parallel", "offload", "compilation", "load")
    for part in (*(getattr(config, f"{name}_config", None) for name in parts), config):
        if not dataclasses.is_dataclass(part):
            continue
        for field in dataclasses.fields(part):
            value = getattr(part, field.name, None)
            if type(value).__name__ == "dtype":
                value = str(value).removeprefix("torch.")
            if isinstance(value, bool | int | float | str):
                found.setdefault(field.name, value)
    return found
