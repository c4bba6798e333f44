"""Statistics of how two window tables differ, for many weightings of their windows at once.

Every function takes weights of shape (draws, windows) for each side and returns shape (draws,).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.drift_windows import Floats, WindowTable

LEAST_CV = 1e-3
Column = Callable[[WindowTable], Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One trace's windows and how often each is counted, shape (draws, windows)."""

    table: WindowTable
    weights: Floats

    def total(self, column: Floats) -> Floats:
        """Return the weighted sum over windows of a column (windows,) or (windows, bins)."""
        return np.asarray(self.weights @ column)


def rate_ratio(reference: Side, fresh: Side) -> Floats:
    """Return fresh / reference requests a busy window."""
    return _busy_rate(fresh) / _busy_rate(reference)


def burstiness_ratio(reference: Side, fresh: Side) -> Floats:
    """Return fresh / reference median over windows of the gaps' coefficient of variation."""
    return _median_cv(fresh) / _median_cv(reference)


def mean_ratio(reference: Side, fresh: Side, tokens: Column) -> Floats:
    """Return fresh / reference mean tokens a request."""
    return _mean(fresh, tokens) / _mean(reference, tokens)


def stability_index(reference: Side, fresh: Side, bins: Column) -> Floats:
    """Return PSI = sum((f - r) ln(f / r)) over bins; half a request is added to each bin."""
    r, f = _shares(reference, bins), _shares(fresh, bins)
    return np.asarray(np.sum((f - r) * np.log(f / r), axis=1))


def class_variation(reference: Side, fresh: Side) -> Floats:
    """Return half the summed absolute difference of shares over the nine length classes.

    That is the share of requests that moved to another class (total variation distance).
    """
    r, f = reference.total(reference.table.cells), fresh.total(fresh.table.cells)
    # A draw may hold idle windows only: no request, no share.
    r = r / np.maximum(r.sum(axis=1, keepdims=True), 1.0)
    f = f / np.maximum(f.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(0.5 * np.abs(f - r).sum(axis=1))


def wasserstein_tokens(reference: Side, fresh: Side, bins: Column, points: Floats) -> Floats:
    """Return the Wasserstein-1 distance in tokens: the area between distribution functions.

    The functions are known at ``points`` (bin i holds lengths up to points[i]), pooled quantiles.
    """
    gap = np.abs(_cdf(fresh, bins) - _cdf(reference, bins))
    return np.asarray(gap[:, : points.size - 1] @ np.diff(points))


def reuse_difference(reference: Side, fresh: Side) -> Floats:
    """Return fresh - reference share of prompt tokens that were sent before (0..1)."""
    return _reuse_frac(fresh) - _reuse_frac(reference)


def enough_windows(table: WindowTable, fewest: int) -> tuple[bool, bool]:
    """Return whether gaps and prefix reuse are known in at least ``fewest`` windows."""
    gaps = int(np.isfinite(table.gap_cv).sum()) >= fewest
    reuse = table.reusable is not None and int((table.reusable > 0).sum()) >= fewest
    return gaps, reuse


def resampled(table: WindowTable, draws: int, rng: np.random.Generator) -> Side:
    """Return the table with windows drawn with replacement, ``draws`` times."""
    windows = len(table)
    chosen = rng.integers(windows, size=(draws, windows))
    offset = np.arange(draws)[:, None] * windows
    flat = np.bincount((chosen + offset).ravel(), minlength=draws * windows)
    return Side(table=table, weights=flat.reshape(draws, windows).astype(np.float64))


def as_is(table: WindowTable) -> Side:
    """Return the table with every window counted once."""
    return Side(table=table, weights=np.ones((1, len(table))))


def _busy_rate(side: Side) -> Floats:
    table = side.table
    busy = np.maximum(side.total(table.busy), 1.0)
    return np.asarray(np.maximum(side.total(table.requests * table.busy), 0.5) / busy)


def _median_cv(side: Side) -> Floats:
    known = np.flatnonzero(np.isfinite(side.table.gap_cv))
    order = known[np.argsort(side.table.gap_cv[known])]
    running = np.cumsum(side.weights[:, order], axis=1)
    place: NDArray[np.int64] = np.argmax(running >= running[:, -1:] / 2.0, axis=1)
    # Evenly spaced requests have no spread at all; a floor keeps the ratio finite.
    return np.asarray(np.maximum(side.table.gap_cv[order][place], LEAST_CV))


def _mean(side: Side, tokens: Column) -> Floats:
    requests = np.maximum(side.total(side.table.requests), 1.0)
    return np.asarray(np.maximum(side.total(tokens(side.table)), 1.0) / requests)


def _shares(side: Side, bins: Column) -> Floats:
    counts = side.total(bins(side.table)) + 0.5
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _cdf(side: Side, bins: Column) -> Floats:
    running = np.cumsum(side.total(bins(side.table)), axis=1)
    return np.asarray(running / np.maximum(running[:, -1:], 1.0))


def _reuse_frac(side: Side) -> Floats:
    table = side.table
    if table.reused is None or table.reusable is None:
        raise ValueError("prefix reuse is unknown; ask enough_windows first")
    return np.asarray(side.total(table.reused) / np.maximum(side.total(table.reusable), 1.0))
