"""Recording into real MLflow stores: sqlite files, and a server that goes away and comes back."""

import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace

import httpx
import pytest
import yaml

from tasks.adapters.mlflow_store import recorder
from tasks.adapters.mlflow_store.library import MlflowStore, open_store
from tasks.adapters.mlflow_store.parameter_sets import (
    point_alias,
    register_parameter_set,
    resolve_parameter_set,
)
from tasks.adapters.mlflow_store.store_uri import default_tracking_uri
from tasks.domain.errors import StorageError, TrackerUnavailableError
from tasks.domain.run_record import RunRecord
from tasks.record import prepare_store, reconcile_runs, record_study

EXPERIMENT = "vllm/model/gpu"
PARENT = RunRecord(
    key="study-1",
    name="study",
    status="FINISHED",
    metrics=(("bench/goodput_req_s", 17.7),),
    tags=(("study_id", "study-1"),),
    started_ms=1_764_547_200_000,
    ended_ms=1_764_547_500_000,
)
TRIAL = RunRecord(
    key="ev-1",
    parent_key="study-1",
    name="seqs256",
    status="FINISHED",
    params=(("vllm/max_num_seqs", "256"), ("vllm/args", "x" * 7_000)),
    metrics=(("bench/goodput_req_s", 17.7),),
    series=(("running", tuple((step, float(step % 7)) for step in range(2_300))),),
    started_ms=1_764_547_260_000,
    ended_ms=1_764_547_300_000,
    artifacts="trials/t1",
)
FINISHED = "attributes.status = 'FINISHED' and tags.complete = 'true'"


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """A store with tables and nothing in it; making one takes seconds, copying it none."""
    home = tmp_path_factory.mktemp("empty")
    prepare_store(default_tracking_uri(home))
    return home / "mlflow" / "mlflow.db"


@pytest.fixture
def home(tmp_path, empty_database):
    (tmp_path / "mlflow").mkdir()
    shutil.copy(empty_database, tmp_path / "mlflow" / "mlflow.db")
    return tmp_path


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    (folder / "trials" / "t1").mkdir(parents=True)
    (folder / "trials" / "t1" / "evidence.json").write_text("{}")
    return folder


def record(home, study, runs=(PARENT, TRIAL), uri=None):
    return record_study(
        runs,
        experiment=EXPERIMENT,
        tracking_uri=uri or default_tracking_uri(home),
        study_folder=study,
        lock_dir=home / "locks",
    )


def runs_in(uri, filter_text=FINISHED):
    store = open_store(uri)
    experiment = store.find_experiment(EXPERIMENT)
    return {run.tags["retune.key"]: run for run in store.find_runs(experiment, filter_text)}


def test_a_study_is_recorded_once_however_often_it_is_recorded(home, study):
    first = record(home, study)
    assert record(home, study) == first
    found = runs_in(default_tracking_uri(home))
    assert sorted(found) == ["ev-1", "study-1"]
    trial = found["ev-1"]
    assert trial.tags["mlflow.parentRunId"] == found["study-1"].run_id
    assert trial.metrics["bench/goodput_req_s"] == 17.7
    assert trial.metrics["series/running"] == 3.0  # the last step is 2299 = 7 x 328 + 3
    assert trial.params["vllm/args"].startswith("sha256:")
    store = open_store(default_tracking_uri(home))
    assert store.read_bytes(trial.run_id, "evidence.json") == b"{}"
    assert store.read_bytes(trial.run_id, "long_values/vllm_args.txt") == b"x" * 7_000
    assert (home / "mlflow" / "artifacts").is_dir()


def test_mlflow_takes_every_reported_name_after_mapping(home, study, shared_dir):
    case = yaml.safe_load((shared_dir / "cases" / "g-03.yaml").read_text(encoding="utf-8"))
    metrics = tuple(case["input"]["metrics"].items())
    record(home, study, (replace(PARENT, metrics=metrics),))
    logged = runs_in(default_tracking_uri(home))["study-1"].metrics
    assert len(logged) == case["expected"]["logged_keys"]
    assert sorted(logged.values()) == sorted(value for _, value in metrics)


def test_a_smaller_corrected_value_is_the_one_that_mlflow_shows(home, study):
    record(home, study)
    record(home, study, (replace(PARENT, metrics=(("bench/goodput_req_s", 3.0),)), TRIAL))
    found = runs_in(default_tracking_uri(home))
    assert found["study-1"].metrics == {"bench/goodput_req_s": 3.0}
    assert len(found) == 2


def _record_one(home, study, number, start):
    start.wait()
    record(home, study, (replace(PARENT, key=f"study-{number}"),))


def test_six_processes_that_open_a_new_store_together_all_record(tmp_path, study):
    open_store(f"sqlite:///{tmp_path}/warm.db")  # the import is inherited by the forks
    context = multiprocessing.get_context("fork")
    start = context.Barrier(6)
    workers = [
        context.Process(target=_record_one, args=(tmp_path, study, number, start))
        for number in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    found = runs_in(default_tracking_uri(tmp_path))
    assert sorted(found) == [f"study-{number}" for number in range(6)]


def test_a_locked_database_delays_recording_and_loses_nothing(home, study):
    locked = sqlite3.connect(
        home / "mlflow" / "mlflow.db", isolation_level=None, check_same_thread=False
    )
    with closing(locked):
        locked.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(2.0, locked.rollback)
        release.start()
        record(home, study)
        release.join()
    assert sorted(runs_in(default_tracking_uri(home))) == ["ev-1", "study-1"]


def _die_before_the_end(home, study):
    MlflowStore.end_run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    record(home, study)


def test_a_killed_recording_is_reconciled_and_then_recorded(home, study):
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=_die_before_the_end, args=(home, study))
    worker.start()
    worker.join()
    uri = default_tracking_uri(home)
    (left,) = runs_in(uri, "attributes.status = 'RUNNING'").values()
    closed = reconcile_runs(experiment=EXPERIMENT, tracking_uri=uri, lock_dir=home / "locks")
    assert closed == (left.run_id,)
    (killed,) = runs_in(uri, "attributes.status = 'KILLED'").values()
    assert killed.tags["ended_by"] == "reconciler"
    parent, _ = record(home, study)
    assert parent.run_id == left.run_id
    assert sorted(runs_in(uri)) == ["ev-1", "study-1"]


def test_a_recording_in_progress_is_not_reconciled(home, study, monkeypatch):
    uri = default_tracking_uri(home)
    seen = []

    def look_then_write(store, stored, *args, **kwargs):
        with closing(sqlite3.connect(home / "mlflow" / "mlflow.db")) as db:
            seen.extend(db.execute("SELECT status FROM runs").fetchall())

    monkeypatch.setattr(recorder, "write_run", look_then_write)
    record(home, study, (PARENT,))
    assert seen == [("RUNNING",)]
    assert reconcile_runs(experiment=EXPERIMENT, tracking_uri=uri, lock_dir=home / "locks") == ()


def test_a_parameter_set_is_registered_resolved_rolled_back_and_guarded(home):
    uri, file = default_tracking_uri(home), home / "peak.yaml"
    for number, alias in ((1, "champion"), (2, "champion"), (2, "candidate")):
        file.write_text(f"max_num_seqs: {number}\n")
        version = register_parameter_set(
            file, name="m.peak", tags={"study_id": "s"}, alias=alias, tracking_uri=uri
        )
        assert version == str(number)
    assert resolve_parameter_set("m.peak", "champion", tracking_uri=uri) == (
        "2",
        "max_num_seqs: 2\n",
    )
    point_alias("m.peak", "champion", "1", tracking_uri=uri)
    assert resolve_parameter_set("m.peak", "champion", tracking_uri=uri)[0] == "1"
    (stored,) = [
        path
        for path in (home / "mlflow" / "artifacts").rglob("peak.yaml")
        if path.read_text() == "max_num_seqs: 1\n"
    ]
    stored.write_text("max_num_seqs: 999\n")
    with pytest.raises(StorageError, match="altered"):
        resolve_parameter_set("m.peak", "champion", tracking_uri=uri)
    with pytest.raises(TrackerUnavailableError) as caught:
        point_alias("m.peak", "champion", "77", tracking_uri=uri)
    assert caught.value.code == "TRACKER_REFUSED"


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def mlflow_server(home, port):
    """A real server on 127.0.0.1 in a session of its own; ended by its group's id."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", default_tracking_uri(home)]
    command += ["--artifacts-destination", (home / "served").as_uri()]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (home / "server.log").open("a") as log:
        server = subprocess.Popen(
            command,
            cwd=home,
            env={**os.environ, **quiet},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 400
        while True:
            assert server.poll() is None, (home / "server.log").read_text()
            assert time.monotonic() < deadline, (home / "server.log").read_text()
            try:
                httpx.get(f"http://127.0.0.1:{port}/version", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def test_an_outage_of_the_server_delays_recording_and_loses_nothing(home, study):
    port = _free_port()
    with mlflow_server(home, port) as uri:
        (parent,) = record(home, study, (PARENT,), uri)
        assert parent.url == f"{uri}/#/experiments/{parent.experiment_id}/runs/{parent.run_id}"
    with pytest.raises(TrackerUnavailableError) as caught:
        record(home, study, uri=uri)
    assert uri in str(caught.value)
    assert f"retune record {study}" in str(caught.value)
    assert (study / "trials" / "t1" / "evidence.json").is_file()
    with mlflow_server(home, port) as uri:
        again, trial = record(home, study, uri=uri)
        assert again == parent
        assert sorted(runs_in(uri)) == ["ev-1", "study-1"]
        assert open_store(uri).read_bytes(trial.run_id, "evidence.json") == b"{}"
        file = home / "peak.yaml"
        file.write_text("max_num_seqs: 256\n")
        register_parameter_set(file, name="m.peak", tags={}, alias="champion", tracking_uri=uri)
        assert resolve_parameter_set("m.peak", "champion", tracking_uri=uri) == (
            "1",
            "max_num_seqs: 256\n",
        )
