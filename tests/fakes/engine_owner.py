"""A process that owns a scripted engine until it is killed: stands for the controller."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

_PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tasks.deploy import deploy_engine
from tasks.domain.engine_launch import EngineLaunch
here = Path(sys.argv[2])
launch = EngineLaunch(
    model_dir=str(here / "model"), served_name="m-1", python=str(here / "engine-python"),
    env=tuple(tuple(pair.split("=")) for pair in sys.argv[3:]),
)
engine = deploy_engine(launch, workdir=here / "w", lease_dir=here / "leases")
(here / "ready").write_text(str(engine.pid))
time.sleep(600)
"""


def owner_of_an_engine(folder: Path, *settings: str) -> subprocess.Popen[bytes]:
    """Start the owner; it writes ``ready`` with the engine's pid once the engine serves.

    ``folder`` holds ``model`` and ``engine-python``; settings are SCRIPTED_NAME=value.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(REPOSITORY), str(folder), *settings], cwd=folder
    )
