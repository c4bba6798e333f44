import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tasks.adapters.mlflow_store.check import check_tracking
from tasks.adapters.mlflow_store.file_lock import hold_lock
from tasks.adapters.mlflow_store.recorder import record_runs
from tasks.adapters.mlflow_store.store_uri import checked_uri, default_tracking_uri, redacted
from tasks.adapters.mlflow_store.urls import compare_url, run_url, runs_url
from tasks.domain.errors import ConfigError, TrackerUnavailableError


@pytest.mark.parametrize(
    "uri", ["file:///data/mlruns", "./mlruns", "/data/mlruns", "", "sqlite://", "sqlite:///"]
)
def test_a_folder_or_a_nameless_database_is_refused_with_a_hint(uri):
    with pytest.raises(ConfigError, match="sqlite:///FILE") as caught:
        checked_uri(uri)
    assert caught.value.code == "TRACKING_STORE_UNSUPPORTED"


def test_the_file_store_s_hint_names_the_migration(tmp_path):
    with pytest.raises(ConfigError, match="migrate-filestore"):
        record_runs(
            (),
            experiment="e",
            tracking_uri="file:///data/mlruns",
            artifacts_root=tmp_path,
            lock_dir=tmp_path,
        )


def test_a_database_without_a_server_is_refused_and_its_password_is_not_shown():
    with pytest.raises(ConfigError, match="mlflow server") as caught:
        checked_uri("postgresql://ml:secret@db/mlflow")
    assert "secret" not in str(caught.value)


def test_supported_addresses_get_one_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert checked_uri("sqlite:///m.db") == f"sqlite:///{tmp_path}/m.db"
    assert checked_uri("sqlite:////data/m.db") == "sqlite:////data/m.db"
    assert checked_uri("http://host:5000/") == "http://host:5000"
    assert default_tracking_uri(tmp_path) == f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    assert redacted("https://user:pw@host/x") == "https://***@host/x"


def test_pages_are_those_of_mlflow_s_interface():
    base = "http://127.0.0.1:5000/"
    assert compare_url("1", ["a", "b"], base) == (
        "http://127.0.0.1:5000/#/compare-runs?runs=%5B%22a%22%2C%22b%22%5D"
        "&experiments=%5B%221%22%5D&workflowType=machine_learning"
    )
    table = "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning"
    assert compare_url("1", ["a"], base) == table
    assert runs_url("1", base, charts=True) == f"{table}&compareRunsMode=CHART"
    assert run_url("1", "a", base) == "http://127.0.0.1:5000/#/experiments/1/runs/a"
    page = runs_url("1", base, study_id="s-1")
    assert page.endswith("&searchFilter=tags.study_id%20%3D%20%22s-1%22")


def test_a_new_store_is_possible_and_is_not_created_by_the_look(tmp_path):
    ok, sentence = check_tracking(f"sqlite:///{tmp_path}/deep/m.db")
    assert ok
    assert "will be created" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "m.db").write_text("not a database, but long enough to be looked at")
    ok, sentence = check_tracking(f"sqlite:///{tmp_path}/m.db")
    assert not ok
    assert "not an sqlite database" in sentence


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "m").write_text("")
    ok, sentence = check_tracking(f"sqlite:///{tmp_path}/m/m.db")
    assert not ok
    assert str(tmp_path / "m") in sentence


def test_a_busy_store_is_there(tmp_path):
    with closing(sqlite3.connect(tmp_path / "m.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE runs (id TEXT)")
        assert check_tracking(f"sqlite:///{tmp_path}/m.db")[1].endswith("is writable")
        db.execute("BEGIN EXCLUSIVE")
        ok, sentence = check_tracking(f"sqlite:///{tmp_path}/m.db")
    assert ok
    assert "busy" in sentence


def test_an_unsupported_store_is_told_without_raising():
    ok, sentence = check_tracking("file:///data/mlruns")
    assert not ok
    assert "migrate-filestore" in sentence


def test_a_server_that_does_not_answer_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ok, sentence = check_tracking(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert not ok
    assert "no answer" in sentence


class _Versions(BaseHTTPRequestHandler):
    replies = {"/version": (200, b"3.17.2"), "/other/version": (200, b"<html>")}

    def do_GET(self):
        status, body = self.replies.get(self.path, (403, b"Invalid Host header"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), _Versions) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_a_server_is_known_by_its_version(server):
    assert check_tracking(server) == (True, f"MLflow 3.17.2 answers at {server}")
    ok, sentence = check_tracking(f"{server}/other")
    assert not ok
    assert "not an MLflow version" in sentence
    assert "HTTP 403" in check_tracking(f"{server}/closed")[1]


def test_a_lock_that_another_process_holds_is_waited_for_and_then_named(tmp_path):
    path = tmp_path / "locks" / "m.lock"
    with (
        hold_lock(path),
        pytest.raises(TrackerUnavailableError, match=r"m\.lock") as caught,
        hold_lock(path, timeout_s=0.1),
    ):
        pytest.fail("two holders")
    assert caught.value.code == "TRACKER_LOCKED"
    with hold_lock(path, timeout_s=0.1):
        pass


def test_no_module_of_the_package_imports_mlflow_when_it_is_imported():
    code = (
        "import sys, tasks.record, tasks.adapters.mlflow_store.recorder, "
        "tasks.adapters.mlflow_store.reconcile, tasks.adapters.mlflow_store.parameter_sets, "
        "tasks.adapters.mlflow_store.check; sys.exit('mlflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
