"""Talks to the scheduler plug-in of a running engine: what it runs with, and other values.

The plug-in itself is live_scheduler/retune_scheduler.py, which the engine loads. The channel is a
socket in a folder that only the engine's user may enter.
"""

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tasks.adapters.vllm_server.lease import leases
from tasks.adapters.vllm_server.process_tree import lives
from tasks.domain.errors import ConfigError, EngineNotReadyError, InvalidParameterError
from tasks.domain.live_values import EngineState
from tasks.domain.parameters import ParameterValues

SOCKET_NAME = "engine.sock"
ANSWER_TIMEOUT_S = 10.0
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0"})


def current_values(control_dir: Path) -> EngineState:
    """Return what the engine behind a control folder runs with.

    Raises:
        ConfigError: the folder is not there or is not this user's alone.
        EngineNotReadyError: nothing answers in it.
    """
    return _state(_ask(control_dir, {}, wait_s=0.0))


def apply_values(control_dir: Path, values: ParameterValues, *, wait_s: float) -> EngineState:
    """Move the engine to these live values; return its state once they are in force.

    A cap below the requests that run is in force when enough of them have ended: wait_s seconds
    are given to that.

    Raises:
        InvalidParameterError: SWITCH_REFUSED, with the engine's reasons; nothing was changed.
        EngineNotReadyError: SWITCH_PENDING after wait_s (it goes on by itself), SWITCH_SUPERSEDED
            by somebody else's later change, or nothing answers.
        ConfigError: the folder is not there or is not this user's alone.
    """
    reply = _ask(control_dir, {"values": values.as_dict(), "wait_s": wait_s}, wait_s=wait_s)
    outcome = reply.get("outcome")
    if outcome == "refused":
        reasons = _values(reply.get("reasons")).as_dict().values()
        raise InvalidParameterError(
            f"the engine refused the change and keeps its values: {'; '.join(map(str, reasons))}",
            code="SWITCH_REFUSED",
        )
    state = _state(reply)
    if outcome == "pending":
        raise EngineNotReadyError(
            f"after wait_s={wait_s:g} more requests run than the new cap allows; now in force "
            f"{state.in_force.as_dict()}, asked {state.asked.as_dict()}: it moves on as they end, "
            "ask again",
            code="SWITCH_PENDING",
        )
    confirmed = {name: state.in_force.get(name) for name, _ in values.items}
    if outcome != "applied" or confirmed != values.as_dict():
        raise EngineNotReadyError(
            f"asked {values.as_dict()}, the engine runs {confirmed} ({outcome}): somebody else "
            "changed it meanwhile; agree on who does",
            code="SWITCH_SUPERSEDED",
        )
    return state


def control_dir_at(url: str, lease_dir: Path) -> Path:
    """Return the control folder of the engine that this product started at a URL.

    Raises:
        ConfigError: no live engine of ours is there, or it was started without the plug-in.
    """
    target = urlsplit(url)
    for _, lease in leases(lease_dir):
        leader = lease.tree.leader
        if lease.port != target.port or target.hostname not in LOOPBACK:
            continue
        if leader is None or not lives(leader):
            continue
        if lease.control_dir is None:
            raise ConfigError(
                f"the engine at {url} was started without live_knobs, so every value needs a "
                "rolling restart; start it with live_knobs",
                code="NO_LIVE_KNOBS",
            )
        return Path(lease.control_dir)
    raise ConfigError(
        f"no engine of {lease_dir} runs at {url}; give --control the engine's RETUNE_CONTROL_DIR, "
        "or RETUNE_HOME the home that started it",
        code="NO_LIVE_KNOBS",
    )


def _ask(control_dir: Path, request: dict[str, object], *, wait_s: float) -> dict[str, object]:
    timeout_s = ANSWER_TIMEOUT_S + wait_s
    with _own(control_dir) as directory, socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(timeout_s)
        try:
            # Through the descriptor: a socket's own path may have 107 bytes at most.
            channel.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            channel.sendall(json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as lines:
                reply = json.loads(lines.readline())
        except (OSError, ValueError) as error:
            raise EngineNotReadyError(
                f"no engine answers in {control_dir} within {timeout_s:g} s: {error}; see that it "
                "runs and was started with RetuneScheduler and this RETUNE_CONTROL_DIR",
                code="CONTROL_UNREACHABLE",
            ) from error
    if not isinstance(reply, dict):
        raise EngineNotReadyError(
            f"{control_dir} answered {reply!r}, not a state; its plug-in is of another version",
            code="CONTROL_UNREACHABLE",
        )
    return reply


@contextmanager
def _own(control_dir: Path) -> Iterator[int]:
    """Open the folder and see that nobody else can have put a socket there."""
    try:
        directory = os.open(control_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"control folder {control_dir} cannot be opened: {error}; give the engine's "
            "RETUNE_CONTROL_DIR, as the engine's own user",
            code="NO_LIVE_KNOBS",
        ) from error
    try:
        seen = os.fstat(directory)
        mode = stat.S_IMODE(seen.st_mode)
        if seen.st_uid != os.geteuid() or mode & 0o077:
            raise ConfigError(
                f"control folder {control_dir} has owner uid={seen.st_uid} and mode={mode:o}; "
                "needed this user's own with mode 700",
                code="CONTROL_NOT_PRIVATE",
            )
        yield directory
    finally:
        with suppress(OSError):
            os.close(directory)


def _state(reply: dict[str, object]) -> EngineState:
    """Return the reply as a record.

    Raises:
        EngineNotReadyError: it lacks a field, so its plug-in is of another version.
    """
    try:
        return EngineState(
            change_id=int(str(reply["id"])),
            in_force=_values(reply["in_force"]),
            asked=_values(reply["asked"]),
            envelope=_values(reply["envelope"]),
            started_with=_values(reply["started_with"]),
            version=str(reply["version"]),
            model=str(reply["model"]),
            pid=int(str(reply["pid"])),
        )
    except (KeyError, ValueError) as error:
        raise EngineNotReadyError(
            f"the engine's answer has no usable {error}; its plug-in is of another version: start "
            "it with this product's own",
            code="CONTROL_UNREACHABLE",
        ) from error


def _values(data: object) -> ParameterValues:
    return ParameterValues.of(data if isinstance(data, dict) else {})
