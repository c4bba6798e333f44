"""``retune render``: results alone on standard output, what a person should know on the other."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from tasks.domain.errors import ConfigError, InvalidParameterError
from tests.conftest import REPOSITORY

SET = """
name: peak
regime: peak
state: candidate
model: llama-3-8b
checkpoint: reference
values: {max_num_seqs: 256, max_num_batched_tokens: 1024}
provenance:
  study_id: a1b2c3d4e5f6
  engine: 0.24.0
  flavour: cuda
  hardware: NVIDIA H200
  engine_values: {max_model_len: 8192, max_num_seqs: 256, max_num_batched_tokens: 1024}
  expires_on: '2020-01-31'
note: candidate
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "peak.yaml"
    path.write_text(SET)
    return path


def render(*arguments: object) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["render", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_arguments_stand_alone_and_an_expired_set_is_warned_of(file: Path) -> None:
    told, warned = render(file, "--model", "/m")
    assert shlex.split(told) == [
        "/m", "--served-model-name", "llama-3-8b", "--host", "0.0.0.0", "--port", "8000",
        "--max-model-len", "8192", "--max-num-batched-tokens", "1024", "--max-num-seqs", "256",
    ]  # fmt: skip
    assert "warning: the set expired on 2020-01-31" in warned
    assert "# study-id: a1b2c3d4e5f6" in warned


def test_a_set_that_has_not_expired_is_not_warned_of(file: Path) -> None:
    file.write_text(SET.replace("2020-01-31", "2999-01-31"))
    _, warned = render(file, "--model", "/m")
    assert "warning" not in warned


@pytest.mark.parametrize(("render_as", "documents"), [("compose", 1), ("k8s", 2)])
def test_manifests_are_yaml_with_the_files_own_hash(
    file: Path, render_as: str, documents: int
) -> None:
    told, _ = render(file, "--as", render_as, "--image", "mine:1")
    assert told.startswith("# set: llama-3-8b.peak\n")
    found = list(yaml.safe_load_all(told))
    assert len(found) == documents
    assert "mine:1" in told
    printed, _ = render(file, "--as", render_as, "--image", "mine:1", "--json")
    document = json.loads(printed)
    assert document["text"] == told
    assert len(document["provenance"]["set-sha256"]) == 64
    assert document["provenance"]["set-sha256"] in told
    assert "/models/llama-3-8b" in document["arguments"]
    assert len(document["warnings"]) == 2  # expired; no --model was named


def test_what_the_sets_engine_does_not_take_is_refused(file: Path) -> None:
    file.write_text(SET.replace("values: {max", "values: {swap_space: 4, max"))
    with pytest.raises(InvalidParameterError, match="swap_space"):
        render(file)


def test_a_cpu_set_says_that_its_cores_are_the_measured_hosts(file: Path) -> None:
    file.write_text(SET.replace("flavour: cuda", "flavour: cpu\n  device_count: 4"))
    told, warned = render(file, "--as", "env")
    assert "VLLM_CPU_OMP_THREADS_BIND=0-3" in told
    assert "bound to cores 0-3" in warned


def test_a_format_and_a_source_that_nobody_knows_are_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="args, env, compose, k8s"):
        render(file, "--as", "helm")
    with pytest.raises(ConfigError, match="registry:NAME@champion"):
        render("registry:@champion")
    with pytest.raises(ConfigError, match="no such file"):
        render(file.with_name("other.yaml"))


@pytest.mark.parametrize("name", ["peak", "off_peak", "failover"])
def test_the_sets_that_come_with_the_product_are_rendered(name: str) -> None:
    told, warned = render(REPOSITORY / "configs/parameter_sets" / f"{name}.yaml")
    assert shlex.split(told)[0] == "/models/smollm2-135m"
    assert "names no engine" in warned
