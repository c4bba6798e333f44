"""Exit codes 0, 1 and 2 of the release gate and of a night, each from a real run on a real engine.

The engine is the tests' shared one, attached by its URL; Prefect's embedded server and a local
MLflow store are real.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks import publish
from tasks.adapters.config_files.parameter_set_file import load_parameter_set
from tasks.domain.set_registry import registered_name
from tests.conftest import REPOSITORY

EASY_SLO = "ttft_s: 60\nattainment_frac: 0.5\n"  # kept on a host of any speed
LIGHT_LOAD = """\
load:
  rate_scales: [1.0]
  duration_s: {seconds}
  window_s: 10
  warmup_requests: 2
"""


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOSITORY / "configs", tmp_path / "configs"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with the model; one for all runs, as a user has it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "models").mkdir()
    model = Path(os.environ["RETUNE_ENGINE_MODEL"])
    (folder / "models" / model.name).symlink_to(model)
    return folder


def retune(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "RETUNE_HOME": str(home),
        "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlflow.db'}",
        "RETUNE_QUIET": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        capture_output=True, text=True, cwd=REPOSITORY, env=environment, timeout=600, check=False,
    )  # fmt: skip


def with_load(path: Path, seconds: int) -> Path:
    """Replace the file's load by a light one."""
    lines = path.read_text().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith("load:"))
    end = next(
        (i for i, line in enumerate(lines[start + 1 :], start + 1) if not line.startswith(" ")),
        len(lines),
    )
    path.write_text("".join([*lines[:start], LIGHT_LOAD.format(seconds=seconds), *lines[end:]]))
    return path


def put_in_force(home: Path, path: Path) -> str:
    """Register a set's file, promote it, and return the name by which a study takes it."""
    registry = publish.Registry(
        tracking_uri=f"sqlite:///{home / 'mlflow.db'}", lock_dir=home / "locks"
    )
    found = load_parameter_set(path)
    version = publish.register_set(path, found, registry=registry)
    moved = publish.promote_set(
        registered_name(found.model, found.regime), version.version, registry=registry
    )
    return f"registry:{moved.name}@champion"


@pytest.mark.parametrize(
    ("slo", "seconds", "code", "answer"),
    [
        (EASY_SLO, 20, 0, "GO"),
        ("ttft_s: 0.001\nattainment_frac: 0.9\n", 20, 1, "NO_GO"),
        ("ttft_s: 60\nattainment_frac: 0.99\n", 20, 2, "COULD_NOT_TELL"),
    ],
    ids=["go", "no-go", "could not tell"],
)
def test_the_release_gate_exits_with_its_answer(
    engine_url: str, configs: Path, home: Path, slo: str, seconds: int, code: int, answer: str
) -> None:
    study = with_load(configs / "studies" / "demo.yaml", seconds)
    (configs / "slo" / "chat-cpu.yaml").write_text(slo)
    if answer == "GO":  # the set in force, by its registered name
        champion = put_in_force(home, configs / "parameter_sets" / "peak.yaml")
        text = study.read_text()
        assert "../parameter_sets/peak.yaml" in text
        study.write_text(text.replace("../parameter_sets/peak.yaml", champion))
    ended = retune(home, "release", str(study), "--url", engine_url, "--json")
    assert ended.returncode == code, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert document["answer"] == answer
    assert document["run_ids"]


def test_an_unchanged_trace_keeps_the_set(engine_url: str, configs: Path, home: Path) -> None:
    nightly = with_load(configs / "nightly.yaml", 20)
    (configs / "slo" / "chat-cpu.yaml").write_text(EASY_SLO)
    ended = retune(home, "nightly", str(nightly), "--regime", "peak", "--url", engine_url, "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (night,) = json.loads(ended.stdout)
    assert night["verdict"]["outcome"] == "KEEP"


def test_a_drifted_trace_does_not(engine_url: str, configs: Path, home: Path) -> None:
    nightly = with_load(configs / "nightly.yaml", 20)
    (configs / "slo" / "chat-cpu.yaml").write_text(EASY_SLO)
    drifted = (
        (configs / "traffic" / "peak.yaml")
        .read_text()
        .replace("mean: 36, p50: 32", "mean: 72, p50: 64")
    )
    (configs / "traffic" / "drifted.yaml").write_text(drifted)
    nightly.write_text(
        nightly.read_text().replace("fresh: traffic/peak.yaml", "fresh: traffic/drifted.yaml")
    )
    ended = retune(home, "nightly", str(nightly), "--regime", "peak", "--url", engine_url, "--json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (night,) = json.loads(ended.stdout)
    assert night["verdict"]["outcome"] == "RETUNE"
    assert any(
        f["drifted"] and "prompt" in f["name"] for f in night["verdict"]["drift"]["findings"]
    )


def test_bench_serves_anyone_with_an_endpoint(engine_url: str, home: Path) -> None:
    ended = retune(
        home, "bench", "--url", engine_url, "--traffic", "configs/traffic/peak.yaml",
        "--duration", "10", "--slo", "ttft=30", "--json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    measurement = json.loads(ended.stdout)["measurement"]
    assert measurement["n_ok"] == measurement["n_requests"] > 0
