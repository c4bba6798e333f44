"""How long ``retune --help`` takes, beside a bare start of the same interpreter, in one run."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5


def seconds(command: list[str]) -> float:
    """Return the median seconds of a few runs."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def main() -> None:
    """Print both medians and their ratio."""
    bare = seconds([sys.executable, "-c", "pass"])
    told = seconds([str(Path(sys.executable).with_name("retune")), "--help"])
    print(f"retune --help {told:.2f} s, bare interpreter {bare:.2f} s, ratio {told / bare:.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
