"""The programs here are stand-ins written by each test; no quantizer environment is needed."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.adapters.checkpoints import program
from tasks.adapters.checkpoints.program import installed_versions, run_program
from tasks.adapters.checkpoints.records import Progress
from tasks.domain.errors import QuantizationError, StorageError

PYTHON = Path(sys.executable)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setattr(program, "PROGRAMS", folder)
    return folder


def run(programs: Path, text: str, **options: object) -> dict[str, object]:
    (programs / "p.py").write_text(text)
    log = programs.parent / "logs" / "p.log"
    seen = options.get("seen")
    on_progress = seen.append if isinstance(seen, list) else None
    return run_program("p.py", ["--x", "1"], python=PYTHON, log_path=log, on_progress=on_progress)


def test_progress_lines_reach_the_person_and_the_done_event_comes_back(programs: Path) -> None:
    seen: list[Progress] = []
    text = (
        'print(\'RETUNE {"event": "stage", "name": "quantize"}\', flush=True)\n'
        'print(\'noise RETUNE {"event": "layer", "done": 2, "of": 30}\', flush=True)\n'
        'print("RETUNE broken {", flush=True)\n'
        'print(\'RETUNE {"event": "done", "layers": 30}\', flush=True)\n'
    )
    done = run(programs, text, seen=seen)
    assert [progress.text for progress in seen] == ["quantize", "quantize: layer 2 of 30"]
    assert done == {"event": "done", "layers": 30}


def test_the_program_runs_outside_the_repository_with_none_of_our_paths(programs: Path) -> None:
    text = (
        "import json, os, sys\n"
        "print('RETUNE ' + json.dumps({'event': 'done', 'cwd': os.getcwd(), 'path': sys.path,"
        " 'pythonpath': os.environ.get('PYTHONPATH'), 'offline': os.environ['HF_HUB_OFFLINE'],"
        " 'session': os.getsid(0) == os.getpid()}))\n"
    )
    done = run(programs, text)
    repository = str(Path(__file__).parents[3])
    assert not str(done["cwd"]).startswith(repository)
    path = done["path"]
    assert isinstance(path, list) and repository not in path and "" not in path
    assert done["pythonpath"] is None
    assert done["offline"] == "1"
    assert done["session"] is True


def test_a_failure_quotes_its_root_cause_and_names_the_log(programs: Path) -> None:
    text = (
        "try:\n    int('many')\n"
        "except ValueError as error:\n    raise RuntimeError('worker failed') from error\n"
    )
    with pytest.raises(QuantizationError) as caught:
        run(programs, text)
    assert "ValueError: invalid literal for int() with base 10: 'many'" in str(caught.value)
    assert "p.log" in str(caught.value)


def test_a_sentence_of_the_programs_own_is_quoted(programs: Path) -> None:
    with pytest.raises(QuantizationError, match="the calibration text has 3 tokens"):
        run(programs, "raise SystemExit('the calibration text has 3 tokens')")


def test_a_full_disk_is_told_apart(programs: Path) -> None:
    text = "raise OSError(28, 'No space left on device', 'model.safetensors')"
    with pytest.raises(StorageError, match="free space"):
        run(programs, text)


def test_a_killed_program_says_so(programs: Path) -> None:
    with pytest.raises(QuantizationError, match=r"signal 9 .*memory"):
        run(programs, "import os; os.kill(os.getpid(), 9)")


def test_a_missing_interpreter_is_a_quantization_error(tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match="cannot be started"):
        run_program("p.py", [], python=tmp_path / "none", log_path=tmp_path / "p.log")


def test_an_interrupt_ends_the_program_and_its_children(programs: Path) -> None:
    pids = programs / "pids"
    (programs / "p.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids)!r} + '.new', {str(pids)!r})\n"
        'print(\'RETUNE {"event": "stage", "name": "load"}\', flush=True)\n'
        "time.sleep(600)\n"
    )

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_program("p.py", [], python=PYTHON, log_path=programs / "p.log", on_progress=interrupt)
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.read_text().split())


def test_versions_are_asked_of_the_other_environment() -> None:
    assert installed_versions(PYTHON, ["psutil"]) == {"psutil": psutil.__version__}
    with pytest.raises(QuantizationError, match="no-such-package-here"):
        installed_versions(PYTHON, ["no-such-package-here"])


def test_the_programs_end_themselves_when_the_controller_is_gone(tmp_path: Path) -> None:
    source = (Path(program.__file__).parent / "quantizer_programs" / "dequantize.py").read_text()
    start = source.index("def end_with_parent")
    watcher = source[start : source.index("def unpack")]
    pid_file = tmp_path / "pid"
    child = tmp_path / "child.py"
    child.write_text(
        f"import os, threading, time\n{watcher}\nend_with_parent()\n"
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    parent = (
        "import subprocess, sys, time, os\n"
        f"subprocess.Popen([sys.executable, {str(child)!r}], start_new_session=True)\n"
        f"while not os.path.exists({str(pid_file)!r}) or not open({str(pid_file)!r}).read():\n"
        "    time.sleep(0.05)\n"
        "os._exit(0)\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", parent]) == 0
    orphan = int(pid_file.read_text())
    for _ in range(600):
        if not psutil.pid_exists(orphan):
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(orphan)
