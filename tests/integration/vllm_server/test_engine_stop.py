import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from tasks.adapters.vllm_server.lease import Lease, sweep_leftovers, write_lease
from tasks.adapters.vllm_server.process_tree import boot_id, process_name
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.engine_launch import EngineLaunch
from tests.fakes.engine_owner import owner_of_an_engine

Starter = Callable[..., RunningEngine]
REPOSITORY = Path(__file__).resolve().parents[3]


def gone(pid: int) -> bool:
    return process_name(pid) is None


def until(condition: Callable[[], bool], *, limit_s: float = 30.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def test_a_stop_ends_the_tree_frees_the_port_and_removes_the_lease(
    start: Starter, lease_dir: Path
) -> None:
    engine = start()
    assert len(list(lease_dir.glob("engine-*.json"))) == 1
    report = engine.stop()
    assert report.clean
    assert report.exit_code == -signal.SIGTERM
    assert report.killed == ()
    assert engine.pid in report.terminated
    assert gone(engine.pid)
    assert not list(lease_dir.glob("engine-*.json"))
    assert not engine.is_alive()


def test_a_second_stop_does_nothing(start: Starter) -> None:
    engine = start()
    first = engine.stop()
    second = engine.stop()
    assert second.already
    assert replace(second, already=False) == first


def test_an_engine_that_ignores_sigterm_is_killed(start: Starter) -> None:
    engine = start({"stop_timeout_s": 0.5}, ignore_term=1)
    report = engine.stop()
    assert engine.pid in report.killed
    assert report.exit_code == -signal.SIGKILL
    assert report.clean


@pytest.mark.parametrize("where", ["session", "own_session"])
def test_a_child_that_the_engine_left_behind_is_ended_too(
    start: Starter, tmp_path: Path, where: str
) -> None:
    engine = start(child=where)
    child = int((tmp_path / "work0" / "child.pid").read_text())
    assert child in engine.pids()
    os.kill(engine.pid, signal.SIGKILL)
    assert until(lambda: not engine.is_alive())
    assert not gone(child)
    report = engine.stop()
    assert report.clean
    assert (report.terminated, report.killed) == ((child,), ())
    assert gone(child)


def test_an_engine_killed_under_load_tells_the_signal(start: Starter) -> None:
    engine = start()
    os.kill(engine.pid, signal.SIGKILL)
    failure = engine.dying_words()
    assert failure is not None
    assert (failure.code, failure.retry) == ("ENGINE_DIED", True)
    assert "SIGKILL" in failure.root_cause


def test_a_stopped_engine_has_no_failure(start: Starter) -> None:
    engine = start()
    engine.stop()
    assert engine.failure() is None


@pytest.mark.usefixtures("launch")
def test_the_guardian_ends_the_tree_of_an_owner_that_was_killed(tmp_path: Path) -> None:
    owner = owner_of_an_engine(tmp_path, "SCRIPTED_CHILD=own_session")
    try:
        assert until((tmp_path / "ready").exists)
        engine = int((tmp_path / "ready").read_text())
        child = int((tmp_path / "w" / "child.pid").read_text())
        assert not gone(engine)
    finally:
        owner.kill()
        owner.wait()
    assert until(lambda: gone(engine) and gone(child))
    assert until(lambda: not list((tmp_path / "leases").glob("engine-*.json")))


@pytest.mark.usefixtures("launch")
def test_the_guardian_ends_an_engine_that_was_still_starting(tmp_path: Path) -> None:
    owner = owner_of_an_engine(tmp_path, "SCRIPTED_MODE=silent")
    try:
        assert until((tmp_path / "w" / "argv.json").exists)
    finally:
        owner.kill()
        owner.wait()
    here = str(tmp_path / "w")
    assert until(lambda: all(p.info["cwd"] != here for p in psutil.process_iter(["cwd"])))


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def dead_owner() -> tuple[int, int]:
    """Return pid and start ticks of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    name = process_name(child.pid)
    assert name is not None
    child.kill()
    child.wait()
    return name.pid, name.start_ticks


def lease_of(pid: int, start_ticks: int, owner: tuple[int, int]) -> Lease:
    return Lease(
        token="0" * 32,
        boot_id=boot_id(),
        owner_pid=owner[0],
        owner_start_ticks=owner[1],
        port=1,
        served_name="m",
        argv_sha256="",
        log_path="",
        pid=pid,
        pgid=pid,
        start_ticks=start_ticks,
    )


def test_a_sweep_ends_what_a_dead_owner_left(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    name = process_name(sleeper.pid)
    assert name is not None
    write_lease(tmp_path / "engine-a.json", lease_of(sleeper.pid, name.start_ticks, dead_owner()))
    (leftover,) = sweep_leftovers(tmp_path)
    assert (leftover.action, leftover.pid, leftover.survivors) == ("ended", sleeper.pid, ())
    assert sleeper.wait(timeout=10) == -signal.SIGTERM
    assert not (tmp_path / "engine-a.json").exists()


def test_a_sweep_leaves_what_the_record_does_not_prove(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    name = process_name(sleeper.pid)
    me = process_name(os.getpid())
    assert name is not None
    assert me is not None
    good = lease_of(sleeper.pid, name.start_ticks, dead_owner())
    records = {
        "recycled": (replace(good, start_ticks=name.start_ticks + 1), "unproven"),
        "old-boot": (replace(good, boot_id="another"), "removed"),
        "owned": (replace(good, owner_pid=me.pid, owner_start_ticks=me.start_ticks), "untouched"),
    }
    for file_name, (lease, _) in records.items():
        write_lease(tmp_path / f"engine-{file_name}.json", lease)
    (tmp_path / "engine-torn.json").write_text(json.dumps(asdict(good))[:50])
    found = {Path(item.path).stem: item.action for item in sweep_leftovers(tmp_path)}
    assert found == {
        "engine-recycled": "unproven",
        "engine-old-boot": "removed",
        "engine-owned": "untouched",
        "engine-torn": "unreadable",
    }
    assert not gone(sleeper.pid)
    assert {path.stem for path in tmp_path.iterdir()} == {"engine-owned", "engine-torn"}
    sleeper.kill()
    sleeper.wait()


def test_a_lease_whose_engine_is_gone_is_removed(tmp_path: Path) -> None:
    pid, ticks = dead_owner()
    write_lease(tmp_path / "engine-a.json", lease_of(pid, ticks, dead_owner()))
    assert [item.action for item in sweep_leftovers(tmp_path)] == ["removed"]
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_engine_of_a_dead_owner_is_swept_by_the_next_start(
    launch: EngineLaunch, start: Starter, sleeper: subprocess.Popen[bytes], lease_dir: Path
) -> None:
    name = process_name(sleeper.pid)
    assert name is not None
    write_lease(lease_dir / "engine-a.json", lease_of(sleeper.pid, name.start_ticks, dead_owner()))
    start()
    assert sleeper.wait(timeout=10) == -signal.SIGTERM
