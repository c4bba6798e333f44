"""Deployment files against the specifications that their tools hold them to.

A compose file is checked by check-jsonschema with the compose specification, Kubernetes objects by
the API's own strict schemas, the systemd unit by systemd. Each check is also seen to refuse.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from flows.cli import app
from tests.conftest import REPOSITORY

SCHEMAS = json.loads((REPOSITORY / "tests/golden/kubernetes/v1.37.0-strict.json").read_text())
KINDS = {"Deployment": "io.k8s.api.apps.v1.Deployment", "Service": "io.k8s.api.core.v1.Service"}
SET = """
name: peak
regime: peak
state: candidate
model: llama-3-8b
checkpoint: reference
values: {max_num_seqs: 256, tensor_parallel_size: 2}
provenance:
  study_id: a1b2c3d4e5f6
  engine: 0.24.0
  expires_on: '2026-12-31'
"""
HOSTS = {
    "cuda": "  flavour: cuda\n  hardware: NVIDIA H200\n",
    "cpu": "  flavour: cpu\n  hardware: AMD EPYC\n  device_count: 4\n  cpu_kv_cache_gib: 1\n",
}


def rendered(folder: Path, host: str, render_as: str) -> str:
    path = folder / "peak.yaml"
    path.write_text(SET + HOSTS[host])
    result = CliRunner().invoke(app, ["render", str(path), "--as", render_as, "--image", "x:1"])
    assert result.exit_code == 0, result.output
    return result.stdout


def compose_faults(path: Path) -> str:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def object_faults(document: dict[str, object]) -> list[str]:
    schema = {**SCHEMAS, "$ref": f"#/$defs/{KINDS[str(document['kind'])]}"}
    return [fault.message for fault in Draft202012Validator(schema).iter_errors(document)]


def test_the_tracking_servers_compose_file_is_one(tmp_path: Path) -> None:
    path = REPOSITORY / "mlflow" / "compose.yaml"
    assert compose_faults(path) == ""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(path.read_text().replace("restart:", "restarts:"))
    assert "restarts" in compose_faults(wrong)


@pytest.mark.parametrize("host", HOSTS)
def test_a_rendered_compose_file_is_one(tmp_path: Path, host: str) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(rendered(tmp_path, host, "compose"))
    assert compose_faults(path) == ""


@pytest.mark.parametrize("host", HOSTS)
def test_rendered_kubernetes_objects_are_what_the_api_takes(tmp_path: Path, host: str) -> None:
    served, service = yaml.safe_load_all(rendered(tmp_path, host, "k8s"))
    assert object_faults(served) == object_faults(service) == []
    (container,) = served["spec"]["template"]["spec"]["containers"]
    container["readynessProbe"] = container.pop("readinessProbe")
    assert "readynessProbe" in " ".join(object_faults(served))
    service["spec"]["ports"][0]["port"] = "http"
    assert "'http' is not of type" in " ".join(object_faults(service))


def unit_faults(folder: Path, text: str) -> str:
    path = folder / "mlflow.service"
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_tracking_servers_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        message = "systemd-analyze is absent; install the package systemd"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    text = (REPOSITORY / "mlflow" / "mlflow.service").read_text()
    program = "/opt/vllm-retune/.venv/bin/mlflow"
    assert program in text
    # systemd looks whether the program can be run; the operator's own path is not here.
    here = text.replace(program, str(Path(sys.executable).with_name("mlflow")))
    assert unit_faults(tmp_path, here) == ""
    assert "sometimes" in unit_faults(tmp_path, here.replace("on-failure", "sometimes"))
