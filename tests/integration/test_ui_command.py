"""``retune ui`` serves MLflow on loopback and takes it along when it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import REPOSITORY

START_S = 120.0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_the_server_ends_with_the_command(tmp_path: Path, how: signal.Signals) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {**os.environ, "RETUNE_HOME": str(tmp_path / "home")}
    environment.pop("MLFLOW_TRACKING_URI", None)
    with (tmp_path / "ui.log").open("wb") as log:
        ui = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "ui", "--port", str(port)],
            cwd=REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    try:
        assert answers(port), (tmp_path / "ui.log").read_text(errors="replace")
        tree = psutil.Process(ui.pid).children(recursive=True)
        assert tree
        ui.send_signal(how)
        ui.wait(timeout=60)
        _, alive = psutil.wait_procs(tree, timeout=20)
        assert not alive
    finally:
        ui.kill()


def answers(port: int) -> bool:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            time.sleep(0.5)
    return False
