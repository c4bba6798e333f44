"""How often a study promotes nothing better, and which gain it sees, by budget and plan.

    python tests/benchmarks/decision_calibration.py [SHARED] [--sources queue,short-queue,h200,
        h200-restless,table] [--trials 200] [--seed 0]

SHARED holds the traces and the measured table; without it only the simulated queues run. A study
has two runs an arm on the same arrivals, A B B A. Detected: the interval of the gain is above 0 and
the gain above the A/A noise floor; promoted: it also reaches the study's least gain. A/A: both
arms alike, judged in both directions, so every hit is false. True gain: goodput over all studies.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.calibration_h200 import simulated_h200
from tests.benchmarks.calibration_queue import QUEUES
from tests.benchmarks.calibration_study import Judged, Plan, Run, Source, judge
from tests.benchmarks.calibration_table import ResampledTable

MINUTES = (3, 5, 10, 20)
LEAST_GAINS = (0.0, 0.01, 0.02, 0.03, 0.05)
POWER = 0.8
PLANS = (
    Plan(name="twice half, windows of 30 s", window_s=30.0, later_frac=0.5),
    Plan(name="twice half, windows of 15 s", window_s=15.0, later_frac=0.5),
    Plan(name="most once, a fifth again, windows of 30 s", window_s=30.0, later_frac=0.2),
)
Cell = tuple[int, str, int]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the studies of one source said: by effect, plan and minutes a side."""

    judged: dict[Cell, list[Judged]] = field(default_factory=lambda: defaultdict(list))
    good: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def share(self, effect: int, plan: Plan, minutes: int, least: float) -> float:
        """Return the share of studies that promote at a least gain."""
        found = self.judged[effect, plan.name, minutes]
        return sum(j.promoted(least) for j in found) / len(found)

    def true_gain(self, effect: int) -> float:
        a, b = np.sum(self.good[effect], axis=0)
        return float(b / a - 1)

    def gain_seen(self, plan: Plan, minutes: int, least: float, effects: int) -> float | None:
        """Return the true gain that is promoted with POWER, linear between the measured ones."""
        curve = sorted(
            (self.true_gain(e), self.share(e, plan, minutes, least)) for e in range(1, effects)
        )
        points = [(0.0, self.share(0, plan, minutes, least)), *curve]
        for (x0, y0), (x1, y1) in pairwise(points):
            if y1 >= POWER:
                return x1 if y0 >= POWER else x0 + (POWER - y0) / (y1 - y0) * (x1 - x0)
        return None


def plans_of(source: Source) -> list[Plan]:
    return [plan for plan in PLANS if plan.window_s >= source.least_window_s]


def tally(source: Source, *, trials: int, seed: int) -> Tally:
    rng, found = np.random.default_rng(seed), Tally()
    spans = [plan.seconds(max(MINUTES)) for plan in PLANS]
    first_s, later_s = (max(s[i] for s in spans) for i in range(2))
    for trial in range(trials):
        for effect, arms in enumerate(source.study(rng, first_s=first_s, later_s=later_s)):
            found.good[effect].append((_good(arms.a), _good(arms.b)))
            for plan in plans_of(source):
                for minutes in MINUTES:
                    cell = found.judged[effect, plan.name, minutes]
                    cell.append(judge(arms, plan, minutes=minutes, seed=trial))
                    if effect == 0:
                        cell.append(judge(arms.swapped(), plan, minutes=minutes, seed=trial))
        sys.stderr.write(f"\r{source.name}: {trial + 1} of {trials}")
    sys.stderr.write("\n")
    return found


def _good(runs: tuple[Run, Run]) -> float:
    return float(sum(run.good.sum() for run in runs))


def report(source: Source, found: Tally, *, trials: int) -> list[str]:
    """Return the source's lines: false promotions and gains seen, then the whole curve."""
    effects = len(source.effects)
    leasts = [f"least gain {least:.0%}" for least in LEAST_GAINS]
    lines = [
        f"## {source.name}",
        "",
        f"{source.about}; {trials} studies a cell (A/A: {2 * trials}).",
        "",
        "A/A promotions, then the true gain that is promoted with 80 % power:",
        "",
        *_header(["plan", "min a side", *leasts]),
    ]
    for plan in plans_of(source):
        for minutes in MINUTES:
            cells = [
                f"{found.share(0, plan, minutes, least):.1%}; "
                + _gain(found.gain_seen(plan, minutes, least, effects))
                for least in LEAST_GAINS
            ]
            lines.append(_row([plan.name, str(minutes), *cells]))
    names = [f"{minutes} min a side" for minutes in MINUTES]
    for plan in plans_of(source):
        told = ", ".join(f"{least:.0%}" for least in LEAST_GAINS)
        lines += ["", f"Promoted, {plan.name}, least gain {told}:", ""]
        lines += _header(["challenger", "true gain", *names])
        for effect, name in enumerate(source.effects):
            gain = "0" if effect == 0 else f"{found.true_gain(effect):+.1%}"
            cells = [
                " / ".join(f"{found.share(effect, plan, m, least):.0%}" for least in LEAST_GAINS)
                for m in MINUTES
            ]
            lines.append(_row([name, gain, *cells]))
    return [*lines, ""]


def _gain(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:+.1%}"


def _header(names: Sequence[str]) -> list[str]:
    return [_row(names), _row(["---"] * len(names))]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Print the tables of the asked sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", nargs="?", type=Path)
    parser.add_argument("--sources", default="")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sources: list[Source] = [*QUEUES]
    if asked.shared is not None:
        table = asked.shared / "tables/h200-bf16-azure-conv-r18.json.gz"
        sources += [*simulated_h200(asked.shared), ResampledTable(path=table)]
    named = set(asked.sources.split(",")) if asked.sources else {s.name for s in sources}
    for source in sources:
        if source.name in named:
            found = tally(source, trials=asked.trials, seed=asked.seed)
            sys.stdout.write("\n".join(report(source, found, trials=asked.trials)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
