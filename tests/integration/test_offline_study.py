"""A study on a host that has neither Prefect nor MLflow, and the same study with both.

The engine is a stand-in that streams tokens; everything else is real: the command line, the load
client, the processes, the embedded Prefect server and MLflow's sqlite stores.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tasks.adapters.mlflow_store.library import open_store
from tasks.adapters.mlflow_store.ports import StoredRun
from tests.conftest import REPOSITORY
from tests.fakes.standin_study import write_study

LIMIT_S = 600
# What a GPU host lacks. Every attempt is noted, also one that the code would survive.
ABSENT = ("prefect", "mlflow", "optuna", "lm_eval", "ruamel")
BLOCKER = """
import os, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            with open({log!r}, "a") as log:
                print(name, os.getpid(), sys.argv, file=log)
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
        return None
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a study, its model and what stands for the engine's environment."""
    folder = tmp_path_factory.mktemp("site")
    write_study(folder)
    return folder


def retune(site: Path, home: Path, *arguments: str, **environment: str) -> dict:
    """Run the command line and return the JSON that it prints."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_"))}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments, "--json"],
        cwd=REPOSITORY,
        env={
            **inherited,
            "RETUNE_HOME": str(home),
            "RETUNE_ENGINE_PYTHON": str(site / "engine-python"),
            "RETUNE_QUIET": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def offline(site: Path) -> tuple[Path, dict]:
    """Run the study in processes that cannot import what a GPU host lacks."""
    blocked, asked_for = site / "blocked", site / "asked-for.log"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(BLOCKER.format(absent=ABSENT, log=str(asked_for)))
    before = files_below(site)
    folder = site / "offline"
    told = retune(
        site,
        site / "not-used",
        "tune",
        str(site / "study.yaml"),
        "--offline",
        str(folder),
        PYTHONPATH=f"{blocked}:{REPOSITORY}",
    )
    assert not asked_for.exists(), asked_for.read_text()
    new = files_below(site) - before
    assert new
    assert all(name.startswith(("offline/", "blocked/__pycache__/")) for name in new)
    return folder, told


def test_an_offline_study_measures_decides_and_leaves_a_set(offline: tuple[Path, dict]) -> None:
    folder, told = offline
    assert [trial["status"] for trial in told["trials"]] == ["COMPLETE", "COMPLETE"]
    assert told["decision"]["outcome"] == "PROMOTE", told["decision"]
    assert told["mlflow"] == {
        "tracking_uri": None,
        "experiment": "vllm/stand-in/CPU",
        "run_ids": [],
        "error": f"offline; `retune record {folder}` records it",
    }
    written = yaml.safe_load(Path(told["parameter_set"]).read_text())
    assert (written["state"], written["values"]) == ("candidate", {"max_num_seqs": 32})
    origin = written["provenance"]
    assert origin["study_id"] == told["study_id"]
    assert origin["engine_values"] == {"max_model_len": 512, "max_num_seqs": 32}
    assert (origin["engine"], origin["flavour"], origin["cpu_kv_cache_gib"]) == ("0.32.0", "cpu", 1)
    assert "mlflow_run_ids" not in origin
    assert not (folder / "leases").exists() or not any((folder / "leases").glob("*.json"))


def test_what_was_done_when_is_logged_step_by_step(offline: tuple[Path, dict]) -> None:
    folder, _ = offline
    (log,) = folder.glob("studies/*/steps.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for before, after in pairwise(rows):
        assert before["began_s"] + before["seconds"] <= after["began_s"] + 0.01
    measured = [row for row in rows if row["step"] == "Measure"]
    assert [(row["arm"], row["load"]) for row in measured[:2]] == [
        ("defaults", "x1.00"), ("defaults", "x1.00_r1"),
    ]  # fmt: skip
    # The last request is due a little before the end.
    assert all(row["load_s"] == 12.0 and row["seconds"] > 9.0 for row in measured)
    assert {row["failed"] for row in rows} == {None}


def stored_runs(home: Path, experiment: str) -> dict[str, StoredRun]:
    store = open_store(f"sqlite:///{home / 'mlflow' / 'mlflow.db'}")
    found = store.find_experiment(experiment)
    assert found is not None
    runs = store.find_runs(found, "attributes.status = 'FINISHED' and tags.complete = 'true'")
    assert len(runs) == len(store.find_runs(found, ""))
    return {run.tags["retune.key"]: run for run in runs}


# Who wrote a run, when, from which commit and with which Prefect run differs; what was found does
# not.
OWN_TAGS = ("retune.pid", "retune.process_started", "retune.host", "retune.boot_id",
            "retune.heartbeat", "retune.content_sha256", "git_sha", "prefect.flow_run_id",
            "mlflow.parentRunId", "ended_by")  # fmt: skip


def content(runs: dict[str, StoredRun]) -> dict[str, tuple[object, ...]]:
    return {
        key: (
            run.name,
            run.status,
            dict(run.params),
            dict(run.metrics),
            {k: v for k, v in run.tags.items() if k not in OWN_TAGS},
        )
        for key, run in runs.items()
    }


def artifacts(home: Path, runs: dict[str, StoredRun]) -> dict[str, set[str]]:
    """Return the files of every run, by the run's key."""
    places = {
        path.parent.name: path for path in (home / "mlflow" / "artifacts").glob("*/*/artifacts")
    }
    return {key: files_below(places[run.run_id]) for key, run in runs.items()}


@pytest.fixture(scope="module")
def recorded(site: Path, offline: tuple[Path, dict]) -> tuple[Path, Path, dict]:
    """Record a copy of the folder as another machine would, where the first one is not there."""
    folder, _ = offline
    copy, home = site / "elsewhere" / "copied", site / "office"
    shutil.copytree(folder, copy)
    hidden = folder.rename(site / "offline-is-away")
    try:
        told = retune(site, home, "record", str(copy), RETUNE_ENGINE_PYTHON="/nowhere/python")
    finally:
        hidden.rename(folder)
    return copy, home, told


def test_a_copied_folder_is_recorded_once_however_often(
    site: Path, recorded: tuple[Path, Path, dict]
) -> None:
    copy, home, told = recorded
    (run,) = told["runs"]
    before = stored_runs(home, run["experiment"])
    assert len(run["runs"]) == len(before) == 3
    assert run["parameter_set"] == {
        "file": str(copy / "studies" / Path(run["folder"]).name / "parameter_set/peak.yaml"),
        "name": "stand-in.peak",
        "version": "1",
        "aliases": ["candidate"],
    }
    (log,) = copy.glob("studies/*/steps.jsonl")
    began_s = json.loads(log.read_text().splitlines()[0])["began_s"]
    assert min(stored.started_ms for stored in before.values()) == round(1000 * began_s)
    assert retune(site, home, "record", str(copy)) == told
    assert retune(site, home, "record", run["folder"]) == told
    after = stored_runs(home, run["experiment"])
    assert {k: r.tags for k, r in after.items()} == {k: r.tags for k, r in before.items()}
    versions = retune(site, home, "sets", "list", "stand-in.peak")["versions"]
    assert [version["version"] for version in versions] == ["1"]


def test_the_recorded_runs_are_those_of_the_study_under_prefect(
    site: Path, offline: tuple[Path, dict], recorded: tuple[Path, Path, dict]
) -> None:
    folder, offline_told = offline
    _, office, _ = recorded
    online = site / "online"
    online.mkdir()
    # The measurements are the offline study's: figures of two runs of load are never equal.
    for name in ("studies", "checkpoint-outcomes"):
        if (folder / name).exists():
            shutil.copytree(folder / name, online / name)
    told = retune(site, online, "tune", str(site / "study.yaml"))
    assert told["mlflow"]["error"] is None
    assert told["decision"] == offline_told["decision"]
    assert told["registered"] == {
        "name": "stand-in.peak", "version": "1", "aliases": ["candidate"], "error": None,
    }  # fmt: skip
    experiment = told["mlflow"]["experiment"]
    under_prefect = stored_runs(online, experiment)
    assert all("prefect.flow_run_id" in run.tags for run in under_prefect.values())
    afterwards = stored_runs(office, experiment)
    assert content(under_prefect) == content(afterwards)
    assert artifacts(online, under_prefect) == artifacts(office, afterwards)
    assert [set(run.tags) & {"git_sha"} for run in under_prefect.values()] == [
        set(run.tags) & {"git_sha"} for run in afterwards.values()
    ]
    registered = retune(site, online, "sets", "show", "stand-in.peak", "--alias", "candidate")
    later = retune(site, office, "sets", "show", "stand-in.peak", "--alias", "candidate")
    for one in (registered, later):
        assert len(one["set"]["provenance"].pop("mlflow_run_ids")) == 3
    assert registered["set"] == later["set"]
    # recording what is recorded already adds nothing, and the set keeps its one version
    again = retune(site, online, "record", str(online))
    assert again["runs"][0]["parameter_set"]["version"] == "1"
    assert content(stored_runs(online, experiment)) == content(under_prefect)


def test_versions_are_promoted_and_rolled_back_by_one_command_each(
    site: Path, recorded: tuple[Path, Path, dict]
) -> None:
    _, home, told = recorded
    folder = Path(told["runs"][0]["folder"])
    product = folder / "parameter_set" / "product.json"
    kept = product.read_text()
    try:
        product.write_text(kept.replace('"note": "candidate', '"note": "second; candidate'))
        again = retune(site, home, "record", str(folder))
        assert again["runs"][0]["parameter_set"]["version"] == "2"
        assert again["runs"][0]["parameter_set"]["aliases"] == ["candidate"]
    finally:
        product.write_text(kept)
    name = "stand-in.peak"
    for version in ("1", "2"):
        retune(site, home, "sets", "promote", name, version)
    shown = retune(site, home, "sets", "show", name)
    assert (shown["version"], shown["aliases"]) == ("2", ["candidate", "champion"])
    moved = retune(site, home, "sets", "rollback", name)
    assert (moved["before"], moved["champion"]) == ("2", "1")
    rendered = retune(site, home, "render", f"registry:{name}", "--model", "/m")
    assert (
        rendered["provenance"]["set-sha256"] == retune(site, home, "sets", "show", name)["sha256"]
    )
    assert rendered["arguments"][:2] == ["--model", "/m"]
    assert "the set was measured on dummy weights: its accuracy is unknown" in rendered["warnings"]
    moved = retune(site, home, "sets", "rollback", name, "--to", "2")
    assert moved["champion"] == "2"
