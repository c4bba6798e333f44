"""Prefect's embedded server, the real one, after its run was killed with SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tasks.adapters.vllm_server.process_tree import ProcessName, lives, process_name
from tests.conftest import REPOSITORY

START_S = 600.0
RUN = """
import sys, time
from pathlib import Path
from flows.environment import home
from flows.prefect_server import prepare_prefect
prepare_prefect(home())
from prefect import flow

@flow
def run() -> None:
    Path(sys.argv[1]).touch()
    while sys.argv[2] == "stay":
        time.sleep(0.1)

run()
"""


def start(folder: Path, name: str, *, home: str = "home", stay: bool) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RETUNE_HOME": str(folder / home)}
    for variable in ("PREFECT_API_URL", "PREFECT_HOME"):
        environment.pop(variable, None)
    with (folder / f"{name}.log").open("wb") as log:  # a pipe would be held by the server too
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, str(folder / name), "stay" if stay else "end"],
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + START_S
    while stay and not (folder / name).exists():
        assert time.monotonic() < deadline
        assert run.poll() is None, "the run ended early"
        time.sleep(0.1)
    return run


def told(folder: Path, name: str, *, home: str = "home") -> str:
    """Return what a run that ends by itself said."""
    run = start(folder, name, home=home, stay=False)
    assert run.wait(timeout=START_S) == 0
    return " ".join((folder / f"{name}.log").read_text().split())


def server_of(run: subprocess.Popen[bytes]) -> ProcessName:
    (server,) = psutil.Process(run.pid).children()
    assert "prefect.server.api.server:create_app" in server.cmdline()
    name = process_name(server.pid)
    assert name is not None
    return name


def test_the_server_of_a_killed_run_is_ended_by_the_next_and_no_other_is(tmp_path: Path) -> None:
    killed = start(tmp_path, "killed", stay=True)
    living = start(tmp_path, "living", stay=True)
    elsewhere = start(tmp_path, "elsewhere", home="other", stay=True)
    servers = [server_of(run) for run in (killed, living, elsewhere)]
    try:
        for run in (killed, elsewhere):
            run.kill()
            run.wait()
        assert all(map(lives, servers)), "Prefect ends it by itself now"

        said = told(tmp_path, "next")
        assert f"ended the Prefect server pid={servers[0].pid} that" in said
        assert [lives(server) for server in servers] == [False, True, True]

        told(tmp_path, "again", home="other")
        assert [lives(server) for server in servers] == [False, True, False]
    finally:
        for run in (killed, living, elsewhere):
            run.kill()
            run.wait()
        for server in filter(lives, servers):
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
