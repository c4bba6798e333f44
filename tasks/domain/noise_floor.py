"""How far apart two alike runs of one schedule may be by chance, from a study's own A/A pairs.

What differs from run to run (clocks, memory layout, a neighbour) shifts all windows of a run alike,
so an interval over windows does not see it; only repeats do. Knows goodput of repeats; what a gain
is, is decided elsewhere.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from scipy.stats import t

from tasks.domain.measurement import Measurement

FLOOR_CONFIDENCE = 0.95

Stream = tuple[str | None, str, float | None, int | None]


def stream_of(m: Measurement) -> Stream:
    """Return what two measurements share that offered the same requests at the same times."""
    point = m.load_point
    return m.schedule_sha256, str(point.kind), point.rate_scale, point.concurrency


def repeat_pairs(
    measurements: Sequence[Measurement],
) -> tuple[tuple[Measurement, Measurement], ...]:
    """Return neighbouring repeats of one load on one schedule: the A/A pairs of an arm."""
    streams: dict[Stream, list[Measurement]] = defaultdict(list)
    for m in measurements:
        streams[stream_of(m)].append(m)
    return tuple(pair for repeats in streams.values() for pair in pairwise(repeats))


def noise_floor(pairs: Iterable[tuple[Measurement, Measurement]]) -> float | None:
    """Return the difference / mean of two alike runs' goodput that chance exceeds once in twenty.

    t(0.95, k) sqrt(mean d^2) over the differences d of k A/A pairs: the one-sided prediction bound
    of one more difference of normal runs (Hahn and Meeker 1991, "Statistical Intervals", chapter 4;
    here the mean is known to be 0). None without a pair. A pair is compared on the windows that
    both have: a repeat may be shorter. The largest of two differences, in its place, let an alike
    arm pass in up to a fifth of simulated studies (tests/benchmarks/README.md).
    """
    shared = [_shared_goodput(one, two) for one, two in pairs]
    differences = [2 * (one - two) / (one + two) for one, two in shared if one + two > 0]
    if not differences:
        return None
    spread = math.sqrt(float(np.mean(np.square(differences))))
    return float(t.ppf(FLOOR_CONFIDENCE, len(differences))) * spread


def averaged_noise(a: Sequence[Measurement], b: Sequence[Measurement]) -> float:
    """Return the noise of the difference of two arms' means / that of two single runs, 0..1.

    sqrt((sum of squared weights of a's runs + of b's) / 2): 1 for one run an arm, 0.71 for two
    whole ones. A window's goodput is the mean over the runs that have it, so a short repeat weighs
    little.
    """
    return math.sqrt((_squared_weights(a) + _squared_weights(b)) / 2)


def _squared_weights(runs: Sequence[Measurement]) -> float:
    sharers: dict[tuple[Stream, float, float], int] = defaultdict(int)
    keys = [[(stream_of(m), w.start_s, w.end_s) for w in m.windows] for m in runs]
    for key in (key for windows in keys for key in windows):
        sharers[key] += 1
    if not sharers:
        return 1.0
    return sum((sum(1 / sharers[k] for k in windows) / len(sharers)) ** 2 for windows in keys)


def _shared_goodput(one: Measurement, two: Measurement) -> tuple[float, float]:
    """Return both goodputs in req/s over the windows of equal start and end."""
    of_one = {(w.start_s, w.end_s): w.goodput_req_s for w in one.windows}
    of_two = {(w.start_s, w.end_s): w.goodput_req_s for w in two.windows}
    spans = [span for span in of_one if span in of_two]
    if not spans:
        return one.goodput_req_s, two.goodput_req_s
    means = [np.mean([found[span] for span in spans]) for found in (of_one, of_two)]
    return float(means[0]), float(means[1])
