"""Paired comparison of two arms by windows of the schedule that both were offered.

The unit of resampling is a window, never a request: requests of one burst are not independent.
Knows goodput and its noise; which arm deserves to win is the decision's business.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from tasks.domain.measurement import MIN_WINDOWS, Measurement
from tasks.domain.noise_floor import Stream, averaged_noise, stream_of

RESAMPLES = 10_000
MIN_WINDOW_S = 30.0
# A window shorter than the E2E tail carries its neighbour's queue. Calibrated: without drift equal
# arms pass interval and floor in 4.8 % of studies with windows of 1.2 tails, in 6.0 % with 0.8
# (tests/benchmarks/README.md).
WINDOW_TAILS = 1.0
MORE_ROUNDS = "another round, or a whole later one, would lower the A/A noise floor"
MOST_LOAD_FACTOR = 1000.0  # beyond this many times the load, "more load" is no advice


class GainVerdict(StrEnum):
    """What a comparison shows of the challenger against the reference."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Goodput of a challenger against a reference on the same windows.

    gain_frac: mean difference of goodput / the reference's mean goodput (the offered rate where
    that is 0); low, high: its bootstrap interval, as shares too. n_windows: windows a side, of
    window_s seconds (neighbours are merged until a window is long enough); n_requests: both sides.
    diverged_windows: of both sides, in which the queue kept growing. more_load_s: seconds a side
    that would decide at this noise, None where decided or beyond reason, and where only the noise
    floor stands against a difference (under_floor): more rounds lower it, longer ones do not.
    """

    gain_frac: float | None
    low: float | None
    high: float | None
    n_windows: int
    window_s: float
    n_requests: int
    diverged_windows: int
    verdict: GainVerdict
    more_load_s: float | None
    reason: str
    under_floor: bool = False


def compare_windows(
    a: Sequence[Measurement],
    b: Sequence[Measurement],
    *,
    min_gain_frac: float,
    noise_floor_frac: float | None,
    seed: int,
    confidence: float = 0.95,
    min_window_s: float = MIN_WINDOW_S,
) -> Comparison:
    """Return how b's goodput compares with a's on the windows that both were offered.

    Windows pair by schedule, load and start; repeats of a window are averaged. BETTER: the
    interval of the gain is above 0, the gain reaches ``min_gain_frac`` and exceeds the A/A noise
    floor. WORSE: the mirror image. SAME: the interval lies inside plus-minus the larger of the
    two. Fewer than six windows a side, or anything else, is UNDECIDED. noise_floor_frac: of two
    single runs (noise_floor.py); it shrinks as an arm's runs are averaged.
    """
    tails = [m.e2e_tail_s for m in (*a, *b) if m.e2e_tail_s is not None]
    needed_s = max([min_window_s, *(WINDOW_TAILS * tail for tail in tails)])
    paired = _paired_windows(a, b, needed_s)
    floor = None if noise_floor_frac is None else noise_floor_frac * averaged_noise(a, b)
    threshold = max(min_gain_frac, floor or 0.0)
    counts = _Counts(
        n_windows=len(paired.a),
        window_s=paired.window_s,
        n_requests=sum(m.n_requests for m in (*a, *b)),
        diverged=sum(w.diverged for m in (*a, *b) for w in m.windows),
    )
    if len(paired.a) < MIN_WINDOWS:
        missing_s = (MIN_WINDOWS - len(paired.a)) * max(paired.window_s, needed_s)
        why = f"{len(paired.a)} windows of at least {needed_s:.0f} s a side, {MIN_WINDOWS} needed"
        return _comparison(counts, None, GainVerdict.UNDECIDED, missing_s, why)
    gain = _bootstrap(paired, seed=seed, confidence=confidence)
    verdict = _verdict(gain, min_gain_frac, floor or 0.0, threshold)
    undecided = verdict is GainVerdict.UNDECIDED
    under_floor = undecided and (gain.low > 0 or gain.high < 0) and abs(gain.frac) >= min_gain_frac
    more_s = _more_load_s(gain, threshold, counts) if undecided and not under_floor else None
    why = _floor_text(floor, min_gain_frac) + _ceiling_text(paired, min_gain_frac)
    return _comparison(counts, gain, verdict, more_s, why, under_floor=under_floor)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Paired:
    """Goodput of both arms and the offered rate by window, shape (n,), in requests/s."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    offered: NDArray[np.float64]
    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gain:
    frac: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    n_windows: int
    window_s: float
    n_requests: int
    diverged: int


def _by_window(
    measurements: Sequence[Measurement],
) -> dict[tuple[Stream, float, float], tuple[float, float]]:
    """Return (goodput, offered rate) by stream, start and end; the mean over repeats."""
    found: dict[tuple[Stream, float, float], list[tuple[float, float]]] = defaultdict(list)
    for m in measurements:
        for w in m.windows:
            rate = w.n / (w.end_s - w.start_s)
            found[stream_of(m), w.start_s, w.end_s].append((w.goodput_req_s, rate))
    return {
        key: (float(np.mean([g for g, _ in rows])), float(np.mean([r for _, r in rows])))
        for key, rows in found.items()
    }


def _paired_windows(a: Sequence[Measurement], b: Sequence[Measurement], needed_s: float) -> _Paired:
    """Return the windows of both arms, neighbours merged until each is ``needed_s`` long."""
    of_a, of_b = _by_window(a), _by_window(b)
    streams: dict[Stream, list[tuple[Stream, float, float]]] = defaultdict(list)
    for key in sorted(of_a.keys() & of_b.keys(), key=repr):
        streams[key[0]].append(key)
    rows: list[tuple[float, float, float]] = []
    length_s = 0.0
    for keys in streams.values():
        keys.sort(key=lambda key: key[1])
        width = keys[0][2] - keys[0][1]
        block = max(1, math.ceil(needed_s / width - 1e-9))
        length_s = max(length_s, block * width)
        for i in range(len(keys) // block):
            part = keys[i * block : (i + 1) * block]
            triples = [(of_a[k][0], of_b[k][0], of_a[k][1]) for k in part]
            mean = np.mean(triples, axis=0)
            rows.append((float(mean[0]), float(mean[1]), float(mean[2])))
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return _Paired(a=table[:, 0], b=table[:, 1], offered=table[:, 2], window_s=length_s)


def _bootstrap(paired: _Paired, *, seed: int, confidence: float) -> _Gain:
    """Return the gain with its expanded percentile interval.

    Few windows make the plain percentile interval too narrow: its tails are widened to
    Phi(-sqrt(n / (n - 1)) t(n - 1)) (Hesterberg 2015, "What teachers should know about the
    bootstrap", section 5).
    """
    difference, n = paired.b - paired.a, paired.a.size
    scale = float(paired.a.mean()) or float(paired.offered.mean()) or 1.0
    chosen = np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n))
    means = difference[chosen].mean(axis=1) / scale
    tail = (1 - confidence) / 2
    expanded = float(norm.cdf(-math.sqrt(n / (n - 1)) * t.ppf(1 - tail, n - 1)))
    low, high = np.quantile(means, [expanded, 1 - expanded])
    return _Gain(frac=float(difference.mean()) / scale, low=float(low), high=float(high))


def _verdict(gain: _Gain, min_gain: float, floor: float, threshold: float) -> GainVerdict:
    size = abs(gain.frac)
    enough = size >= min_gain and size > floor
    if gain.low > 0 and enough:
        return GainVerdict.BETTER
    if gain.high < 0 and enough:
        return GainVerdict.WORSE
    if -threshold <= gain.low and gain.high <= threshold:
        return GainVerdict.SAME
    return GainVerdict.UNDECIDED


def _more_load_s(gain: _Gain, threshold: float, counts: _Counts) -> float | None:
    """Return the seconds a side that would decide: the half-width shrinks with sqrt(windows)."""
    size, half = abs(gain.frac), (gain.high - gain.low) / 2
    target = size if size > threshold else threshold - size
    if target <= 0 or half > target * math.sqrt(MOST_LOAD_FACTOR):
        return None
    windows = math.ceil(counts.n_windows * (half / target) ** 2)
    return max(1, windows - counts.n_windows) * counts.window_s


def _floor_text(floor: float | None, min_gain: float) -> str:
    aa = "no A/A pair was measured" if floor is None else f"A/A noise floor {floor:.2%}"
    return f"least gain {min_gain:.2%}, {aa}"


def _ceiling_text(paired: _Paired, min_gain: float) -> str:
    mean = float(paired.a.mean())
    if mean <= 0:
        return "; the reference has no goodput: shares are of the offered rate"
    ceiling = float(paired.offered.mean()) / mean - 1
    if ceiling >= min_gain:
        return ""
    return f"; no arm can gain more than {ceiling:.2%} here, since only good requests count"


def _comparison(
    counts: _Counts,
    gain: _Gain | None,
    verdict: GainVerdict,
    more_s: float | None,
    why: str,
    *,
    under_floor: bool = False,
) -> Comparison:
    size = "" if gain is None else f"{gain.frac:+.2%} (95 % {gain.low:+.2%} to {gain.high:+.2%}); "
    lost = f"; queue diverged in {counts.diverged} windows" if counts.diverged else ""
    more = "" if more_s is None else f"; about {more_s:.0f} s more load a side would decide"
    if under_floor:
        more = (
            f"; more than chance within these runs, less than alike runs differ by: {MORE_ROUNDS}"
        )
    elif more_s is None and verdict is GainVerdict.UNDECIDED:
        more = "; no reasonable amount of load would decide: the gain is too near the limit"
    text = (
        f"goodput {verdict}: {size}n={counts.n_windows} windows of {counts.window_s:.0f} s a side, "
        f"{counts.n_requests} requests; {why}{lost}{more}"
    )
    return Comparison(
        gain_frac=None if gain is None else gain.frac,
        low=None if gain is None else gain.low,
        high=None if gain is None else gain.high,
        n_windows=counts.n_windows,
        window_s=counts.window_s,
        n_requests=counts.n_requests,
        diverged_windows=counts.diverged,
        verdict=verdict,
        more_load_s=more_s,
        reason=text,
        under_floor=under_floor,
    )
