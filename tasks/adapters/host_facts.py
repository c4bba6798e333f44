"""What this host is: processor, cores, memory, and the commit that the product runs from."""

import os
import subprocess
from pathlib import Path

import psutil


def cpu_name() -> str:
    """Return the processor's model name as the kernel tells it, or ``CPU``."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "CPU"
    names = (line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line)
    return next(names, "CPU")


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Return the host's memory in bytes."""
    return int(psutil.virtual_memory().total)


def git_sha(folder: Path) -> str | None:
    """Return the commit that is checked out in ``folder``, None where there is none."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
