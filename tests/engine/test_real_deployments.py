"""``prefect deploy --all`` against a real server, and every deployment's run on a real engine.

A worker of its own runs them; the demo's files are swapped for smaller loads by parameters.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY

PREFECT = Path(sys.executable).with_name("prefect")
START_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 1_500


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Path:
    """Return a folder with small configurations, a home that has the model, and a store."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(REPOSITORY / "configs", folder / "configs")
    models = folder / "home" / "models"
    models.mkdir(parents=True)
    (models / model_dir.name).symlink_to(model_dir)
    slo = folder / "configs/slo/chat-cpu.yaml"
    slo.write_text("ttft_s: 60\nattainment_frac: 0.5\n")
    nightly = folder / "configs/nightly.yaml"
    nightly.write_text(nightly.read_text().replace("duration_s: 90", "duration_s: 20"))
    study = folder / "configs/studies/small.yaml"
    study.write_text(
        (folder / "configs/studies/smoke.yaml")
        .read_text()
        .replace("  - {name: awq, checkpoint: awq}\n", "")
        .replace("rate_scales: [1.0, 0.5, 1.5]", "rate_scales: [1.0]")
        .replace("duration_s: 12", "duration_s: 20")
        .replace("curve_points: 3", "curve_points: 0")
    )
    return folder


@pytest.fixture(scope="module")
def prefect_environment(site: Path) -> Iterator[dict[str, str]]:
    """Start a Prefect server and a worker on loopback; end both afterwards."""
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(site / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLI_COLORS": "false",
        "MLFLOW_TRACKING_URI": f"sqlite:///{site / 'mlflow.db'}",
        "RETUNE_HOME": str(site / "home"),
        "RETUNE_CHECKOUT": str(REPOSITORY),
        "RETUNE_QUIET": "1",
        "DO_NOT_TRACK": "1",
        "PATH": f"{PREFECT.parent}:{os.environ['PATH']}",
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        log = (site / f"{name}.log").open("wb")
        processes.append(
            subprocess.Popen(
                [str(PREFECT), *arguments], env=environment, cwd=REPOSITORY, stdout=log, stderr=log
            )
        )

    try:
        start("server", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui")
        wait_for(port)
        prefect(environment, "work-pool", "create", "--type", "process", "retune")
        start("worker", "worker", "start", "--pool", "retune", "--limit", "1")
        yield environment
    finally:
        for process in reversed(processes):
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server or worker and its children: a worker may wait long for what it polls."""
    tree = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(tree, timeout=10)
    for child in alive:
        child.kill()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(1)
    pytest.fail("the Prefect server did not start")


def prefect(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PREFECT), "--no-prompt", *arguments],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True,
        timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def deployed(prefect_environment: dict[str, str]) -> dict[str, str]:
    ended = prefect(prefect_environment, "deploy", "--all")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return prefect_environment


def test_every_deployment_of_the_file_is_made(deployed: dict[str, str]) -> None:
    listed = prefect(deployed, "deployment", "ls").stdout
    for name in ("nightly/peak", "nightly/off_peak", "tune/manual", "release/manual"):
        assert name in listed


@pytest.mark.parametrize(
    ("deployment", "parameters", "own_engine"),
    [
        ("nightly/peak", {"config": "configs/nightly.yaml"}, True),
        ("tune/manual", {"study": "configs/studies/small.yaml"}, True),
        ("nightly/off_peak", {"config": "configs/nightly.yaml"}, False),
        ("release/manual", {"study": "configs/studies/small.yaml"}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_deployments_run_completes(
    deployed: dict[str, str],
    site: Path,
    request: pytest.FixtureRequest,
    deployment: str,
    parameters: dict[str, str],
    own_engine: bool,
) -> None:
    """Run the deployment; half of them on the shared engine, since a start takes a minute."""
    given = [f"{name}={json.dumps(str(site / value))}" for name, value in parameters.items()]
    if not own_engine:
        given.append(f"url={json.dumps(request.getfixturevalue('engine_url'))}")
    options = [part for text in given for part in ("--param", text)]
    ended = prefect(deployed, "deployment", "run", deployment, *options, "--watch")
    tail = (site / "worker.log").read_text(errors="replace")[-4000:]
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{tail}"
    assert "Completed" in ended.stdout, ended.stdout
    assert not list((site / "home" / "leases").glob("*.json")), "an engine was left behind"
