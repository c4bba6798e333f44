"""Has the traffic changed enough to tune again? Effect sizes with intervals over time windows.

Thresholds are not fitted to any trace. A ratio's threshold is the square root of the smallest
change that is worth a study (rate x 1.3, lengths x 1.25, burstiness x 2), the point half way on a
log scale between "no change" and that change; prefix reuse takes half of 15 points. For PSI 0.25
is the customary border of a major shift; for the two distances it is the share in the reason.
A finding drifts only if its value reaches the threshold and its interval excludes no change.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.domain import drift_statistics as stats
from tasks.domain.drift_statistics import Side
from tasks.domain.drift_windows import Floats, Grid, WindowTable, grid_of, window_table
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace

Kind = Literal["ratio", "difference", "distance"]
Statistic = Callable[[Side, Side], Floats]

WINDOWS_WANTED = 40
REQUESTS_WANTED = 30  # a window; fewer say little about gaps
SHORTEST_WINDOW_S = 10.0
FEWEST_WINDOWS = 6
DRAWS = 1_000
CONFIDENCE_PCT = 99.0  # each of up to ten findings, so that the report as a whole keeps 90 %
RATE_THRESHOLD = math.sqrt(1.3)
LENGTH_THRESHOLD = math.sqrt(1.25)
BURSTINESS_THRESHOLD = math.sqrt(2.0)
REUSE_THRESHOLD = 0.075
PSI_THRESHOLD = 0.25
WASSERSTEIN_THRESHOLD = 0.25  # of the reference's mean: a shift of all lengths x 1.25
MIX_THRESHOLD = 0.2  # a fifth of the requests moved to another of nine length classes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """One comparison. ``low`` and ``high`` are None where too few windows allow no interval.

    value: fresh / reference for a ratio, fresh - reference for a difference (0..1), else a
    distance. threshold: on the same scale; a ratio also drifts below 1 / threshold. visible: the
    smallest growth that these windows could have shown, a ratio above 1; None where there is no
    interval, and for differences and distances.
    """

    name: str
    statistic: str
    value: float
    low: float | None
    high: float | None
    threshold: float
    drifted: bool
    sentence: str
    visible: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """All comparisons of two traces. ``judged`` is False where no finding has an interval."""

    findings: tuple[DriftFinding, ...]
    window_s: float
    reference_windows: int
    fresh_windows: int
    seed: int

    @property
    def drifted(self) -> bool:
        """Return whether any finding drifted."""
        return any(finding.drifted for finding in self.findings)

    @property
    def drifted_names(self) -> tuple[str, ...]:
        """Names of what drifted, each once, in the report's order."""
        return tuple(dict.fromkeys(f.name for f in self.findings if f.drifted))

    @property
    def judged(self) -> bool:
        """Return whether there were windows enough for at least one interval."""
        return any(finding.low is not None for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Test:
    name: str
    statistic: str
    kind: Kind
    threshold: float
    of: Statistic


def drift_report(
    reference: Trace, fresh: Trace, *, seed: int, window_s: float | None = None
) -> DriftReport:
    """Compare fresh traffic with the reference that the current parameter set was tuned on.

    Both are cut into windows of ``window_s`` (default: a fortieth of the shorter trace, at least
    10 s and 30 requests). Intervals are 99 % bootstrap intervals over windows: percentile for
    ratios and differences, basic for distances, whose resamples are biased upwards.

    Raises:
        TraceError: if either trace has fewer than two requests or no duration.
    """
    for trace in (reference, fresh):
        if not trace.duration_s > 0:
            raise TraceError(
                f"{trace.source} holds {len(trace)} requests over {trace.duration_s:g} s; a drift "
                f"report needs at least two at different times; use a longer trace"
            )
    length = window_s or _window_s(reference, fresh)
    grid = grid_of(reference, fresh, window_s=length)
    old, new = window_table(reference, grid), window_table(fresh, grid)
    rng = np.random.default_rng(seed)
    draws = stats.resampled(old, DRAWS, rng), stats.resampled(new, DRAWS, rng)
    enough = min(len(old), len(new)) >= FEWEST_WINDOWS
    findings = tuple(
        _finding(test, (stats.as_is(old), stats.as_is(new)), draws if enough else None)
        for test in _tests(old, new, grid)
    )
    return DriftReport(
        findings=findings,
        window_s=length,
        reference_windows=len(old),
        fresh_windows=len(new),
        seed=seed,
    )


def _window_s(reference: Trace, fresh: Trace) -> float:
    shorter = min(reference.duration_s, fresh.duration_s)
    mean_gap = max(trace.duration_s / (len(trace) - 1) for trace in (reference, fresh))
    filled = min(REQUESTS_WANTED * mean_gap, shorter / FEWEST_WINDOWS)
    return max(shorter / WINDOWS_WANTED, filled, SHORTEST_WINDOW_S)


def _tests(old: WindowTable, new: WindowTable, grid: Grid) -> list[_Test]:
    known = [stats.enough_windows(table, FEWEST_WINDOWS) for table in (old, new)]
    tests = [_Test("rate", "busy_window_ratio", "ratio", RATE_THRESHOLD, stats.rate_ratio)]
    if all(gaps for gaps, _ in known):
        name, threshold = "median_gap_cv_ratio", BURSTINESS_THRESHOLD
        tests.append(_Test("burstiness", name, "ratio", threshold, stats.burstiness_ratio))
    tests += _length_tests(
        "prompt_tokens",
        lambda t: t.prompt_tokens,
        lambda t: t.prompt_deciles,
        lambda t: t.prompt_points,
        grid.prompt_points,
        old,
    )
    tests += _length_tests(
        "output_tokens",
        lambda t: t.output_tokens,
        lambda t: t.output_deciles,
        lambda t: t.output_points,
        grid.output_points,
        old,
    )
    if all(reuse for _, reuse in known):
        difference = stats.reuse_difference
        tests.append(_Test("prefix_reuse", "difference", "difference", REUSE_THRESHOLD, difference))
    tests.append(_Test("mix", "total_variation", "distance", MIX_THRESHOLD, stats.class_variation))
    return tests


def _length_tests(
    name: str,
    tokens: stats.Column,
    deciles: stats.Column,
    bins: stats.Column,
    points: Floats,
    old: WindowTable,
) -> list[_Test]:
    mean = float(tokens(old).sum() / max(old.requests.sum(), 1.0))

    def ratio(r: Side, f: Side) -> Floats:
        return stats.mean_ratio(r, f, tokens)

    def psi(r: Side, f: Side) -> Floats:
        return stats.stability_index(r, f, deciles)

    def wasserstein(r: Side, f: Side) -> Floats:
        return stats.wasserstein_tokens(r, f, bins, points)

    return [
        _Test(name, "mean_ratio", "ratio", LENGTH_THRESHOLD, ratio),
        _Test(name, "psi", "distance", PSI_THRESHOLD, psi),
        _Test(name, "wasserstein_tokens", "distance", WASSERSTEIN_THRESHOLD * mean, wasserstein),
    ]


def _finding(
    test: _Test, sides: tuple[Side, Side], draws: tuple[Side, Side] | None
) -> DriftFinding:
    value = float(test.of(*sides)[0])
    low = high = None
    if draws is not None:
        tail = (100.0 - CONFIDENCE_PCT) / 2.0
        low, high = np.percentile(test.of(*draws), [tail, 100.0 - tail]).tolist()
        if test.kind == "distance":
            low, high = max(0.0, 2.0 * value - high), max(0.0, 2.0 * value - low)
    drifted = _drifted(test, value, low, high)
    visible = _visible(test, value, low)
    return DriftFinding(
        name=test.name,
        statistic=test.statistic,
        value=value,
        low=low,
        high=high,
        threshold=test.threshold,
        drifted=drifted,
        sentence=_sentence(test, value, (low, high), drifted, visible),
        visible=visible,
    )


def _drifted(test: _Test, value: float, low: float | None, high: float | None) -> bool:
    if low is None or high is None:
        return False
    if test.kind == "ratio":
        return max(value, 1.0 / value) >= test.threshold and (low > 1.0 or high < 1.0)
    if test.kind == "difference":
        return abs(value) >= test.threshold and (low > 0.0 or high < 0.0)
    # A distance is never below 0, so "no change" is excluded by half the threshold instead.
    return value >= test.threshold and low >= test.threshold / 2.0


def _visible(test: _Test, value: float, low: float | None) -> float | None:
    """Return the ratio whose interval, as wide as this one on a log scale, would exclude 1."""
    if test.kind != "ratio" or low is None or low <= 0:
        return None
    return max(test.threshold, value / low)


def _sentence(
    test: _Test,
    value: float,
    interval: tuple[float | None, float | None],
    drifted: bool,
    visible: float | None,
) -> str:
    low, high = interval
    what = f"{test.name} {test.statistic} {value:.3g}"
    if low is None or high is None:
        return f"{what}: not judged, fewer than {FEWEST_WINDOWS} windows"
    reached = (
        max(value, 1.0 / value) >= test.threshold
        if test.kind == "ratio"
        else abs(value) >= test.threshold
    )
    verdict = "drifted" if drifted else "cannot tell from chance" if reached else "no drift"
    told = f"{what} [{low:.3g}, {high:.3g}], threshold {test.threshold:.3g}: {verdict}"
    if drifted or visible is None:
        return told
    return f"{told}; traces of this length and burstiness show growth from x{visible:.2f} on"
