"""Runs a program in the quantizer's environment, in a session of its own, and never leaves it.

The two environments share nothing: the program is started by its own interpreter outside this
repository, with no path of ours, and speaks through a log file.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tasks.adapters.checkpoints.program_log import (
    ProgressReader,
    disk_was_full,
    final_event,
    root_cause,
)
from tasks.adapters.checkpoints.records import Progress
from tasks.domain.errors import QuantizationError, StorageError

PROGRAMS = Path(__file__).parent / "quantizer_programs"
POLL_S = 0.2
GRACE_S = 5.0
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
_SET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

OnProgress = Callable[[Progress], None]


def run_program(
    name: str,
    arguments: Sequence[str],
    *,
    python: Path,
    log_path: Path,
    on_progress: OnProgress | None = None,
) -> dict[str, object]:
    """Run one of the quantizer programs to its end and return its ``done`` event.

    Whatever interrupts the wait, Ctrl-C included, ends the program with all its children first.

    Raises:
        QuantizationError: if the interpreter is missing or the program fails, with its cause.
        StorageError: if the disk was full.
    """
    command = [str(python), "-I", "-u", str(PROGRAMS / name), *arguments]
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="retune-quantizer-") as outside:
        try:
            with log_path.open("wb") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=outside,
                    env=_environment(outside),
                    start_new_session=True,
                )
        except OSError as error:
            raise QuantizationError(
                f"the quantizer's interpreter {python} cannot be started: {error}; "
                "set up the quantizer's environment or give its python"
            ) from error
        try:
            status = _wait(process, ProgressReader(log_path), on_progress)
        finally:
            end_tree(process)
    if status != 0:
        _raise_failure(name, status, log_path)
    return final_event(log_path)


def installed_versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages in the quantizer's environment.

    Raises:
        QuantizationError: if the interpreter cannot be started or a package is missing.
    """
    code = (
        "import sys; from importlib.metadata import version\n"
        "print(*(version(name) for name in sys.argv[1:]))"
    )
    try:
        ended = subprocess.run(
            [str(python), "-I", "-c", code, *packages],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QuantizationError(
            f"the quantizer's interpreter {python} does not answer: {error}; "
            "set up the quantizer's environment or give its python"
        ) from error
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise QuantizationError(
            f"the quantizer's environment of {python} lacks a package that is needed "
            f"({', '.join(packages)}): {last}; install it there"
        )
    return dict(zip(packages, ended.stdout.split(), strict=True))


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """End the process and all its descendants; kill what is left after a grace time."""
    if process.poll() is not None:
        return
    try:
        root = psutil.Process(process.pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        _signal(member, kill=False)
    _, alive = psutil.wait_procs(family, timeout=GRACE_S)
    for member in alive:
        _signal(member, kill=True)
    process.wait()


def _signal(member: psutil.Process, *, kill: bool) -> None:
    try:
        member.kill() if kill else member.terminate()
    except psutil.NoSuchProcess:
        return


def _environment(home_of_caches: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **_SET, "HF_HOME": home_of_caches}


def _wait(
    process: subprocess.Popen[bytes], reader: ProgressReader, on_progress: OnProgress | None
) -> int:
    while True:
        status = process.poll()
        for progress in reader.new():
            if on_progress is not None:
                on_progress(progress)
        if status is not None:
            return status
        time.sleep(POLL_S)


def _raise_failure(name: str, status: int, log_path: Path) -> None:
    cause = root_cause(log_path)
    if disk_was_full(log_path):
        raise StorageError(
            f"{name} could not write its result: {cause}; free space and run it again; "
            f"log: {log_path}"
        )
    how = f"signal {-status}" if status < 0 else f"status {status}"
    memory = " (the system may have killed it for want of memory)" if status == -9 else ""
    raise QuantizationError(f"{name} ended with {how}{memory}: {cause}; log: {log_path}")
