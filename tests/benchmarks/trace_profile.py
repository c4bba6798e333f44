"""Load and profile a five-million-row trace; print seconds and peak memory. Seeded.

Run: python tests/benchmarks/trace_profile.py [csv|jsonl] [ROWS] [--bad]
Each run measures one format in a process of its own, since peak memory never falls again.
``--bad`` breaks one row in 10,000, which sends every block through the slow path.
"""

# ruff: noqa: T201 - a script whose product is what it prints
import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tasks.adapters.trace_files.loading import load_trace
from tasks.domain.trace_profile import profile_trace

CHUNK = 100_000


def make(path: Path, kind: str, rows: int, *, bad: bool) -> None:
    """Write rows with Poisson arrivals and lognormal lengths."""
    rng = np.random.default_rng(5)
    now = 0.0
    with path.open("w", encoding="utf-8") as file:
        if kind == "csv":
            file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            at = now + np.cumsum(rng.exponential(0.1, count))
            now = float(at[-1])
            prompt = np.rint(rng.lognormal(6.5, 1.0, count)).astype(int) + 1
            output = np.rint(rng.lognormal(4.8, 1.0, count)).astype(int) + 1
            if kind == "csv":
                moment = np.datetime64("2025-03-04T00:00:00.000000") + (at * 1e6).astype(
                    "timedelta64[us]"
                )
                stamps = np.char.replace(moment.astype(str), "T", " ")
                lines = [f"{s}0,{p},{o}" for s, p, o in zip(stamps, prompt, output, strict=True)]
            else:
                lines = [
                    f'{{"timestamp": {a:.4f}, "input_length": {p}, "output_length": {o}}}'
                    for a, p, o in zip(at, prompt, output, strict=True)
                ]
            if bad:
                lines[::10_000] = ["broken"] * len(lines[::10_000])
            file.write("\n".join(lines) + "\n")


def profile(path: Path) -> None:
    """Load and profile in this process and print what it took."""
    started = time.perf_counter()
    trace = load_trace(path)
    loaded = time.perf_counter()
    numbers = profile_trace(trace)
    ended = time.perf_counter()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{path.suffix[1:]}: {numbers.requests} requests, {trace.notes.rejected_rows} bad, "
        f"load {loaded - started:.1f} s, profile {ended - loaded:.1f} s, peak {peak_gib:.2f} GiB"
    )


def main() -> None:
    """Make the file, then profile it in a child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["csv", "jsonl"], nargs="?", default="csv")
    parser.add_argument("rows", type=int, nargs="?", default=5_000_000)
    parser.add_argument("--bad", action="store_true")
    parser.add_argument("--profile", type=Path)
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.profile)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace.{arguments.kind}"
        make(path, arguments.kind, arguments.rows, bad=arguments.bad)
        print(f"{path.name}: {path.stat().st_size / 1024**2:.0f} MiB")
        subprocess.run([sys.executable, __file__, "--profile", str(path)], check=True)


if __name__ == "__main__":
    main()
