"""How often a study's comparison promotes nothing better, and which gain it sees, by budget.

    python tests/benchmarks/decision_calibration.py [--trials 300] [--seed 0]

Two arms replay the same arrivals (gamma gaps, CV 1.5) on a simulated engine of 24 slots, first come
first served, whose speed drifts by 1 % from run to run and whose steps jitter by 5 %; a request is
good when it waits at most 1 s. Requests queue behind each other, so those of one window are as
dependent as on a real engine; windows are 30 s and an arm is measured twice (A B B A). A/A: both
arms alike, so every promotion is false. Else the challenger's engine is faster by a share, and
the true gain is the goodput of a long run.
"""

import argparse
import heapq
import sys
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.domain.comparison import GainVerdict, compare_windows, noise_floor, repeat_pairs
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_windows import WindowResult
from tests.fakes.measurements import measurement

Floats = NDArray[np.float64]
WINDOW_S = 30.0
SLOTS = 24
RATE_REQ_S = 4.0
SERVICE_S = 4.8  # mean of a request on one slot: 80 % of the slots busy
WAIT_LIMIT_S = 1.0
DRIFT, JITTER = 0.01, 0.05
MIN_GAIN = 0.05
SPEEDS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.08, 1.12)
MINUTES = (3, 5, 10, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests of one schedule: due times and seconds of service at speed 1."""

    due_s: Floats
    service_s: Floats
    duration_s: float


def draw(rng: np.random.Generator, duration_s: float) -> Arrivals:
    n = int(2 * RATE_REQ_S * duration_s) + 100
    shape = 1 / 1.5**2
    due = np.cumsum(rng.gamma(shape, 1 / (RATE_REQ_S * shape), n))
    due = due[due < duration_s]
    service = rng.lognormal(-0.32, 0.8, due.size) * SERVICE_S
    return Arrivals(due_s=due, service_s=service, duration_s=duration_s)


def good(
    rng: np.random.Generator, load: Arrivals, speed: float, *, drift: float = DRIFT
) -> NDArray[np.bool_]:
    """Return which requests waited at most WAIT_LIMIT_S, in one run of the engine."""
    pace = speed * np.exp(rng.normal(0, drift))
    taken = load.service_s / pace * np.exp(rng.normal(0, JITTER, load.due_s.size))
    free = [0.0] * SLOTS
    kept = np.empty(load.due_s.size, dtype=bool)
    for i, (due, seconds) in enumerate(zip(load.due_s.tolist(), taken.tolist(), strict=True)):
        begin = max(due, free[0])
        heapq.heapreplace(free, begin + seconds)
        kept[i] = begin - due <= WAIT_LIMIT_S
    return kept


def measured(
    template: Measurement, load: Arrivals, kept: NDArray[np.bool_], repeat: int
) -> Measurement:
    """Return the template with the windows and the goodput of one run."""
    edges = np.arange(int(load.duration_s // WINDOW_S) + 1) * WINDOW_S
    due = np.histogram(load.due_s, edges)[0].tolist()
    fine = np.histogram(load.due_s[kept], edges)[0].tolist()
    windows = tuple(
        WindowResult(
            start_s=float(edges[i]),
            end_s=float(edges[i + 1]),
            n=due[i],
            n_good=fine[i],
            goodput_req_s=fine[i] / WINDOW_S,
            diverged=False,
        )
        for i in range(len(due))
    )
    point = replace(template.load_point, duration_s=load.duration_s, repeat=repeat)
    return replace(
        template,
        load_point=point,
        windows=windows,
        n_requests=int(load.due_s.size),
        goodput_req_s=float(kept.sum()) / load.duration_s,
    )


def promoted(
    rng: np.random.Generator, template: Measurement, *, minutes: float, speed: float, seed: int
) -> bool:
    """Tell whether one study of so many minutes a side promotes the challenger."""
    load = draw(rng, 30 * minutes)  # each arm runs the schedule twice
    a = [measured(template, load, good(rng, load, 1.0), i) for i in range(2)]
    b = [measured(template, load, good(rng, load, speed), i) for i in range(2)]
    floor = noise_floor([*repeat_pairs(a), *repeat_pairs(b)])
    found = compare_windows(a, b, min_gain_frac=MIN_GAIN, noise_floor_frac=floor, seed=seed)
    return found.verdict is GainVerdict.BETTER


def true_gain(rng: np.random.Generator, speed: float) -> float:
    load = draw(rng, 100_000.0)
    base = good(rng, load, 1.0, drift=0.0).mean()
    return float(good(rng, load, speed, drift=0.0).mean() / base - 1)


def main() -> int:
    """Print the share of studies that promote, by true gain and minutes a side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    point = LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=60.0)
    template = measurement(point, good=60)
    lines = [
        f"{asked.trials} studies a cell, windows of {WINDOW_S:g} s, least gain {MIN_GAIN:.0%}",
        "| true gain | " + " | ".join(f"{m} min a side" for m in MINUTES) + " |",
        "|---|" + "---|" * len(MINUTES),
    ]
    for speed in SPEEDS:
        gain = 0.0 if speed == 1.0 else true_gain(rng, speed)
        cells = []
        for minutes in MINUTES:
            hits = sum(
                promoted(rng, template, minutes=minutes, speed=speed, seed=i)
                for i in range(asked.trials)
            )
            cells.append(f"{hits / asked.trials:.1%}")
        name = "A/A" if speed == 1.0 else f"{gain:+.1%}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        sys.stderr.write(lines[-1] + "\n")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
