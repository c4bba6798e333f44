"""Recall and false alarms of the drift report on real traces with known changes. Seeded.

Run: python tests/benchmarks/drift_recall.py FOLDER_OF_TRACES [--tuning] [--first N]

A case takes one regime of a real trace, cuts it into one-minute blocks, and gives each pair of
neighbouring blocks to reference and fresh by a coin toss: both then are windows of the same
regime. Non-drifts compare them as they are; drifts first change the fresh side by a fixed size.
Thresholds come from the sizes of change that matter (see tasks/domain/drift.py); the number of
windows and the confidence of the intervals were chosen on the tuning regimes only, which share no
minute with the reporting regimes. Cases of one regime reuse its minutes and are not independent.
"""

# ruff: noqa: T201 - a script whose product is what it prints
import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.drift import DriftReport, drift_report
from tasks.domain.prefix_reuse import prefix_reuse_frac
from tasks.domain.trace import Trace
from tasks.domain.trace_profile import gap_cv
from tasks.domain.trace_selection import select_rows
from tasks.domain.windows import cut

BLOCK_S = 60.0
CASES = 40


@dataclass(frozen=True, kw_only=True)
class Regime:
    name: str
    file: str
    start_min: float
    end_min: float


CONV, CODE = "AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv"
MOONCAKE = "mooncake_conversation_{}20min.jsonl"
TUNING = (
    Regime(name="conv 2-14", file=CONV, start_min=2, end_min=14),
    Regime(name="conv 14-24", file=CONV, start_min=14, end_min=24),
    Regime(name="mooncake first", file=MOONCAKE.format("first"), start_min=0, end_min=20),
    Regime(name="code 0-28", file=CODE, start_min=0, end_min=28),
)
REPORTING = (
    Regime(name="conv peak 25-40", file=CONV, start_min=25, end_min=40),
    Regime(name="conv off-peak 47-57", file=CONV, start_min=47, end_min=57),
    Regime(name="mooncake last", file=MOONCAKE.format("last"), start_min=0, end_min=20),
    Regime(name="code 29-57", file=CODE, start_min=29, end_min=57),
)


def split(trace: Trace, rng: np.random.Generator) -> tuple[Trace, Trace]:
    """Deal neighbouring one-minute blocks to two traces and splice each side's blocks."""
    pairs = int(trace.duration_s // (2 * BLOCK_S))
    coins = rng.integers(2, size=pairs)
    block = (trace.arrival_s // BLOCK_S).astype(int)
    inside = block < 2 * pairs
    pair = np.minimum(block // 2, pairs - 1)
    side = (block % 2) ^ coins[pair]
    parts = []
    for wanted in (0, 1):
        rows = np.flatnonzero(inside & (side == wanted))
        part = select_rows(trace, rows)
        spliced = pair[rows] * BLOCK_S + trace.arrival_s[rows] % BLOCK_S
        parts.append(replace(part, arrival_s=spliced - spliced[0]))
    return parts[0], parts[1]


def faster(trace: Trace, rng: np.random.Generator) -> Trace:
    return replace(trace, arrival_s=trace.arrival_s / 1.3)


def longer(trace: Trace, rng: np.random.Generator) -> Trace:
    def scaled(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.rint(tokens * 1.25), dtype=np.int64)

    return replace(
        trace,
        prompt_tokens=scaled(trace.prompt_tokens),
        output_tokens=scaled(trace.output_tokens),
    )


def burstier(trace: Trace, rng: np.random.Generator) -> Trace:
    """Raise gaps to the power that doubles their coefficient of variation; same duration."""
    gaps = np.diff(trace.arrival_s)
    wanted = 2.0 * (gap_cv(trace.arrival_s) or 1.0)
    low, high = 1.0, 20.0
    for _ in range(60):
        power = (low + high) / 2.0
        raised = gaps**power
        low, high = (power, high) if raised.std() / raised.mean() < wanted else (low, power)
    arrival = np.concatenate([[0.0], np.cumsum(raised)])
    return replace(trace, arrival_s=arrival * trace.duration_s / arrival[-1])


def less_reuse(trace: Trace, rng: np.random.Generator) -> Trace:
    """Give a share of requests blocks of their own until reuse is 15 points lower."""
    assert trace.prefix_blocks is not None
    wanted = (prefix_reuse_frac(trace) or 0.0) - 0.15
    order = rng.permutation(len(trace))
    fresh_id = 10**9
    low, high = 0, len(trace)
    changed = trace
    while high - low > max(1, len(trace) // 200):
        count = (low + high) // 2
        blocks = list(trace.prefix_blocks)
        for row in order[:count].tolist():
            blocks[row] = tuple(range(fresh_id + 1000 * row, fresh_id + 1000 * row + 1000))[
                : len(blocks[row])
            ]
        changed = replace(trace, prefix_blocks=tuple(blocks))
        if (prefix_reuse_frac(changed) or 0.0) > wanted:
            low = count
        else:
            high = count
    return changed


Change = Callable[[Trace, np.random.Generator], Trace]
CHANGES: dict[str, tuple[Change, tuple[str, ...], tuple[int, ...]]] = {
    # name: change, findings of which one must drift, regimes by number (10 cases)
    "rate x 1.3": (faster, ("rate",), (0, 0, 0, 0, 1, 1, 1, 2, 2, 2)),
    "lengths x 1.25": (
        longer,
        ("prompt_tokens", "output_tokens"),
        (0, 0, 0, 1, 1, 2, 2, 2, 3, 3),
    ),
    "burstiness x 2": (burstier, ("burstiness",), (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)),
    "prefix reuse - 15 points": (less_reuse, ("prefix_reuse",), (2,) * 10),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("traces", type=Path)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--first", type=int, default=0, help="number of the first coin-toss seed")
    arguments = parser.parse_args()
    regimes = TUNING if arguments.tuning else REPORTING
    folder: Path = arguments.traces
    traces = [cut(load_trace(folder / r.file), r.start_min * 60, r.end_min * 60) for r in regimes]
    print("regimes:", ", ".join(r.name for r in regimes))
    recall(traces, list(regimes), arguments.first)
    false_alarms(traces, list(regimes), arguments.first)
    on_off_rate(traces[3])
    contiguous(traces, list(regimes))
    servegen(folder / "servegen_m-large")


def recall(traces: list[Trace], regimes: list[Regime], first: int) -> None:
    print("\ndrift                     cases  drifted  right name  missed")
    found = named = cases = 0
    for kind, (name, (change, wanted, places)) in enumerate(CHANGES.items()):
        hits = right = 0
        missed = []
        for case, place in enumerate(places):
            rng = np.random.default_rng([7, kind, first + case])
            old, new = split(traces[place], rng)
            report = drift_report(old, change(new, rng), seed=case)
            hits += report.drifted
            if set(wanted) & set(report.drifted_names):
                right += 1
            else:
                missed.append(regimes[place].name)
        print(f"{name:25s} {len(places):5d} {hits:8d} {right:11d}  {', '.join(missed)}")
        found, named, cases = found + hits, named + right, cases + len(places)
    print(f"{'all':25s} {cases:5d} {found:8d} {named:11d}  recall {named / cases:.3f}")


def false_alarms(traces: list[Trace], regimes: list[Regime], first: int) -> None:
    print("\nnon-drift                 cases  alarms  findings")
    alarms = 0
    each = CASES // len(traces)
    for place, trace in enumerate(traces):
        bad: list[str] = []
        count = 0
        for case in range(each):
            old, new = split(trace, np.random.default_rng([11, place, first + case]))
            report = drift_report(old, new, seed=case)
            count += report.drifted
            bad += drifted(report)
        print(f"{regimes[place].name:25s} {each:5d} {count:7d}  {'; '.join(bad)}")
        alarms += count
    print(f"{'all':25s} {CASES:5d} {alarms:7d}  false alarm rate {alarms / CASES:.3f}")


def on_off_rate(trace: Trace) -> None:
    hits = 0
    visible = []
    for case in range(10):
        rng = np.random.default_rng([13, case])
        old, new = split(trace, rng)
        report = drift_report(old, faster(new, rng), seed=case)
        hits += "rate" in report.drifted_names
        visible += [f.visible for f in report.findings if f.name == "rate" and f.visible]
    print(
        f"\non/off bursts (code), rate x 1.3, not counted above: {hits} of 10 found; the reports "
        f"say that only x{min(visible):.2f} to x{max(visible):.2f} and more could have shown"
    )


def contiguous(traces: list[Trace], regimes: list[Regime]) -> None:
    print("\nfirst against second half of a regime (real change inside it counts as it is):")
    for trace, regime in zip(traces, regimes, strict=True):
        half = trace.duration_s / 2
        report = drift_report(cut(trace, 0, half), cut(trace, half, 2 * half), seed=0)
        print(f"  {regime.name:22s} {'; '.join(drifted(report)) or 'no drift'}")


def servegen(folder: Path) -> None:
    drawn = [
        load_trace(folder, options=TraceOptions(window_start_s=start, window_duration_s=1_800.0))
        for start in (64_800.0, 1_188_000.0)
    ]
    report = drift_report(drawn[0], drawn[1], seed=0)
    print(f"\nServeGen day 0 peak against day 13: {', '.join(report.drifted_names)}")
    same = drift_report(drawn[0], drawn[0], seed=0)
    print(f"ServeGen day 0 peak against itself: {', '.join(same.drifted_names) or 'no drift'}")


def drifted(report: DriftReport) -> list[str]:
    return [f"{f.name} {f.statistic} {f.value:.2f}" for f in report.findings if f.drifted]


if __name__ == "__main__":
    main()
