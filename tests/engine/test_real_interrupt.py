"""However a run ends, its engine ends: Ctrl-C and a cancelled flow (SIGTERM to its process)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY

LEASE_TIMEOUT_S = 400.0
END_TIMEOUT_S = 120.0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "cancelled"])
def test_an_interrupted_study_leaves_no_engine_and_no_lease(
    model_dir: Path, tmp_path: Path, how: signal.Signals
) -> None:
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / model_dir.name).symlink_to(model_dir)
    environment = {
        **os.environ,
        "RETUNE_HOME": str(home),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
    }
    with (tmp_path / "run.log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "tune", "configs/studies/smoke.yaml"],
            cwd=REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True,
            # a test run in the background of a shell inherits SIGINT ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    lease = wait_for_lease(home / "leases", run)
    engine = psutil.Process(lease["pid"])
    ours = psutil.Process(run.pid).children(recursive=True)  # Prefect's embedded server too
    tree = [engine, *engine.children(recursive=True), *ours]
    run.send_signal(how)
    try:
        code = run.wait(timeout=END_TIMEOUT_S)
    finally:
        run.kill()
    said = (tmp_path / "run.log").read_text(errors="replace")
    assert code != 0, said[-2000:]
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert not alive, said[-2000:]
    assert not list((home / "leases").glob("*.json"))


def wait_for_lease(folder: Path, run: subprocess.Popen[bytes]) -> dict[str, int]:
    deadline = time.monotonic() + LEASE_TIMEOUT_S
    while time.monotonic() < deadline and run.poll() is None:
        for path in folder.glob("*.json"):
            document = json.loads(path.read_text())
            if document.get("pid"):
                time.sleep(5)  # let it have children
                return document
        time.sleep(0.5)
    pytest.fail("the run started no engine")
