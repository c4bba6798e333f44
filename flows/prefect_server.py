"""Prefect's embedded server: what it starts with, and the end of what a killed run left of it.

Prefect ends its server when the run's interpreter exits; after SIGKILL nobody does. Every server
therefore carries its owner in its environment, which no other process can have been given: the
record lives exactly as long as the process that it speaks of.
"""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from flows.environment import Home, make_folder, quiet
from flows.progress import Reporter
from tasks.adapters.vllm_server.process_tree import ProcessName, boot_id, lives, process_name

OWNER_VARIABLE = "RETUNE_PREFECT_OWNER"
SERVER_MARK = "PREFECT__SERVER_EPHEMERAL"
"""Set by Prefect (3.9) in the environment of its embedded server and of nothing else."""
STOP_S = 10.0
POLL_S = 0.1


def prepare_prefect(place: Home) -> None:
    """Set what Prefect reads when it is imported and end what a killed run of this home left.

    What the user set stays. Without PREFECT_API_URL and PREFECT_HOME the embedded server keeps
    its database under the home, so that it meets no other Prefect's. Its own limit of twenty
    seconds to start fails on a loaded host, and so did two minutes.
    """
    defaults = {
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        # A step that failed is told in one line by the progress; Prefect would add a traceback.
        "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
        "PREFECT_CLI_COLORS": "false",
        "DO_NOT_TRACK": "1",
    }
    if "PREFECT_API_URL" not in os.environ and "PREFECT_HOME" not in os.environ:
        folder = place.root / "prefect"
        make_folder(folder)
        defaults["PREFECT_HOME"] = str(folder)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    reporter = Reporter(quiet=quiet())
    for pid, owner in sweep_servers(place):
        reporter.line(f"ended the Prefect server pid={pid} that the killed run pid={owner} left")
    os.environ[OWNER_VARIABLE] = _record(place, process_name(os.getpid()))


def sweep_servers(place: Home) -> tuple[tuple[int, int], ...]:
    """End the embedded servers of this home whose run is gone; return (server, run) pids.

    Only processes that carry a record of ours are touched, of this boot and of this process's
    own pid namespace: elsewhere a pid means another process.
    """
    orphans: dict[ProcessName, ProcessName] = {}
    for process in psutil.process_iter():
        server, owner = process_name(process.pid), _owner(process, place)
        if server is not None and owner is not None and not lives(owner):
            orphans[server] = owner
    for number in (signal.SIGTERM, signal.SIGKILL):
        for server in filter(lives, orphans):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(server.pid, number)
        deadline = time.monotonic() + STOP_S
        while any(map(lives, orphans)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return tuple((server.pid, owner.pid) for server, owner in orphans.items())


def _owner(process: psutil.Process, place: Home) -> ProcessName | None:
    """Return the run that started an embedded server of this home, None for any other process."""
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return None
    text = environment.get(OWNER_VARIABLE)
    if text is None or SERVER_MARK not in environment:
        return None
    try:
        record = json.loads(text)
        owner = ProcessName(pid=int(record["pid"]), start_ticks=int(record["start_ticks"]))
    except (ValueError, TypeError, KeyError):
        return None
    return owner if text == _record(place, owner) else None


def _record(place: Home, owner: ProcessName | None) -> str:
    """Return what a server carries: its run by pid and start, and where these mean something."""
    record = {
        "boot_id": boot_id(),
        "home": str(place.root),
        "pid": None if owner is None else owner.pid,
        "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        "start_ticks": None if owner is None else owner.start_ticks,
    }
    return json.dumps(record, sort_keys=True)
