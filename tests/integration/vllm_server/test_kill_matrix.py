"""kill -9 of every process at every phase: after the next start nothing of the old one is left.

Long: run by ``make test-faults``. The engine is scripted; the processes, the guardian, the lease
and the sweep are the product's own. A child in a session of its own stands for EngineCore.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import psutil
import pytest

from tasks.deploy import deploy_engine, stop_engine
from tasks.domain.engine_launch import EngineLaunch
from tests.fakes.engine_owner import owner_of_an_engine

pytestmark = pytest.mark.faults

PHASES = {
    "starting": ("SCRIPTED_MODE=silent", "SCRIPTED_CHILD=own_session"),
    "serving": ("SCRIPTED_MODE=ok", "SCRIPTED_CHILD=own_session"),
    "hung": ("SCRIPTED_MODE=hang", "SCRIPTED_CHILD=own_session"),
    "deaf to SIGTERM": ("SCRIPTED_IGNORE_TERM=1", "SCRIPTED_CHILD=own_session"),
}
VICTIMS = (
    ("controller",),
    ("engine",),
    ("engine child",),
    ("guardian",),
    ("controller", "guardian"),
    ("controller", "engine"),
    ("controller", "guardian", "engine"),
)


def until(condition: Callable[[], bool], limit_s: float = 40.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def read_lease(folder: Path) -> dict[str, int] | None:
    for path in folder.glob("engine-*.json"):
        document = json.loads(path.read_text())
        if document.get("pid"):
            return document
    return None


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def guardians_of(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
        and any("guardian" in part for part in process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    ("phase", "victims"),
    list(product(PHASES, VICTIMS)),
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_after_a_kill_and_the_next_start_nothing_is_left(
    phase: str, victims: tuple[str, ...], launch: EngineLaunch, tmp_path: Path
) -> None:
    owner = owner_of_an_engine(tmp_path, *PHASES[phase])
    leases = tmp_path / "leases"
    try:
        assert until(lambda: (tmp_path / "w" / "child.pid").exists())
        if phase in ("serving", "deaf to SIGTERM"):
            assert until((tmp_path / "ready").exists)
        lease = read_lease(leases)
        assert lease is not None
        engine = psutil.Process(lease["pid"])
        child = psutil.Process(int((tmp_path / "w" / "child.pid").read_text()))
        guardians = guardians_of(leases)
        assert guardians
        pids = {
            "controller": [owner.pid],
            "engine": [engine.pid],
            "engine child": [child.pid],
            "guardian": [guardian.pid for guardian in guardians],
        }
        for victim in victims:
            for pid in pids[victim]:
                os.kill(pid, signal.SIGKILL)
    finally:
        # The controller never survives: a run that lost a part of itself ends too.
        owner.kill()
        owner.wait()
    following = deploy_engine(launch, workdir=tmp_path / "next", lease_dir=leases)
    try:
        left = [p for p in (engine, child, *guardians) if p.is_running()]
        assert until(lambda: not [p for p in left if p.is_running() and p.status() != "zombie"])
        assert not answers(lease["port"]) or following.endpoint.url.endswith(str(lease["port"]))
        assert len(list(leases.glob("engine-*.json"))) == 1
    finally:
        report = stop_engine(following)
    assert report.clean
    assert not list(leases.glob("engine-*.json"))
    assert until(lambda: not guardians_of(leases))
