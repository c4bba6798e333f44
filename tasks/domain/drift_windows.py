"""Two traces cut into equal windows, and statistics of them under any weighting of windows.

Windows, not requests, are resampled: requests of one burst or one conversation are not
independent, and an interval over them would be far too narrow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.prefix_reuse import reused_tokens
from tasks.domain.trace import Trace
from tasks.domain.trace_profile import gap_cv
from tasks.domain.windows import IDLE_FRAC

Floats = NDArray[np.float64]
DECILES = np.arange(1, 10) / 10.0
TERCILES = np.array([1.0, 2.0]) / 3.0
CDF_POINTS = 200
FEWEST_GAPS = 20
LONGEST_HORIZON_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Bin edges that both traces are counted on.

    prompt_deciles, output_deciles, cells: from the reference. prompt_points, output_points: of
    both traces pooled, for the distance between distribution functions.
    """

    window_s: float
    horizon_s: float
    prompt_deciles: Floats
    output_deciles: Floats
    prompt_terciles: Floats
    output_terciles: Floats
    prompt_points: Floats
    output_points: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowTable:
    """Sums a window; the first axis of every array is the window.

    busy: 0 or 1; a window under 10 % of the trace's p95 count is idle. gap_cv: NaN below 20
    gaps. reused and reusable: tokens of requests after the look-back horizon, None if unknown.
    """

    requests: Floats
    busy: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    prompt_deciles: Floats
    output_deciles: Floats
    prompt_points: Floats
    output_points: Floats
    cells: Floats
    gap_cv: Floats
    reused: Floats | None
    reusable: Floats | None

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self.requests.shape[0])


def grid_of(reference: Trace, fresh: Trace, *, window_s: float) -> Grid:
    """Return the bins for comparing two traces; the look-back is a quarter of the shorter one."""
    shorter = min(reference.duration_s, fresh.duration_s)
    return Grid(
        window_s=window_s,
        horizon_s=min(LONGEST_HORIZON_S, shorter / 4.0),
        prompt_deciles=_edges(reference.prompt_tokens, DECILES),
        output_deciles=_edges(reference.output_tokens, DECILES),
        prompt_terciles=_edges(reference.prompt_tokens, TERCILES),
        output_terciles=_edges(reference.output_tokens, TERCILES),
        prompt_points=_points(reference.prompt_tokens, fresh.prompt_tokens),
        output_points=_points(reference.output_tokens, fresh.output_tokens),
    )


def window_table(trace: Trace, grid: Grid) -> WindowTable:
    """Return the trace's sums in whole windows from its start; the last part is left out."""
    count = max(1, int(trace.duration_s / grid.window_s + 1e-9))
    inside = trace.arrival_s < count * grid.window_s
    window = np.minimum(trace.arrival_s[inside] / grid.window_s, count - 1).astype(np.int64)
    prompt, output = trace.prompt_tokens[inside], trace.output_tokens[inside]
    requests = np.bincount(window, minlength=count).astype(np.float64)
    p_cell = np.searchsorted(grid.prompt_terciles, prompt)
    o_cell = np.searchsorted(grid.output_terciles, output)
    columns = grid.output_terciles.size + 1
    cells = (grid.prompt_terciles.size + 1) * columns
    reused, reusable = _reuse(trace, grid, inside, window, count)
    return WindowTable(
        requests=requests,
        busy=_floats(requests >= IDLE_FRAC * np.percentile(requests, 95, method="higher")),
        prompt_tokens=_floats(np.bincount(window, weights=prompt, minlength=count)),
        output_tokens=_floats(np.bincount(window, weights=output, minlength=count)),
        prompt_deciles=_binned(window, count, prompt, grid.prompt_deciles),
        output_deciles=_binned(window, count, output, grid.output_deciles),
        prompt_points=_binned(window, count, prompt, grid.prompt_points),
        output_points=_binned(window, count, output, grid.output_points),
        cells=_table(window, count, p_cell * columns + o_cell, cells),
        gap_cv=_window_cvs(trace.arrival_s[inside], window, count),
        reused=reused,
        reusable=reusable,
    )


def _edges(tokens: NDArray[np.int64], shares: Floats) -> Floats:
    return np.unique(np.quantile(tokens, shares, method="inverted_cdf").astype(np.float64))


def _points(one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
    # Each trace has the same say, however long it is; its own maximum closes the axis.
    shares = np.linspace(0.0, 1.0, CDF_POINTS)
    both = [np.quantile(tokens, shares, method="inverted_cdf") for tokens in (one, other)]
    return np.unique(np.concatenate(both).astype(np.float64))


def _binned(
    window: NDArray[np.int64], count: int, tokens: NDArray[np.int64], edges: Floats
) -> Floats:
    return _table(window, count, np.searchsorted(edges, tokens), edges.size + 1)


def _table(
    window: NDArray[np.int64], count: int, column: NDArray[np.int64], columns: int
) -> Floats:
    flat = np.bincount(window * columns + column, minlength=count * columns)
    return flat.reshape(count, columns).astype(np.float64)


def _window_cvs(arrival: Floats, window: NDArray[np.int64], count: int) -> Floats:
    edges = np.searchsorted(window, np.arange(count + 1))
    cvs = np.full(count, np.nan)
    for i in range(count):
        first, last = int(edges[i]), int(edges[i + 1])
        cv = gap_cv(arrival[first:last]) if last - first > FEWEST_GAPS else None
        if cv is not None:
            cvs[i] = cv
    return cvs


def _reuse(
    trace: Trace,
    grid: Grid,
    inside: NDArray[np.bool_],
    window: NDArray[np.int64],
    count: int,
) -> tuple[Floats | None, Floats | None]:
    reused = reused_tokens(trace, horizon_s=grid.horizon_s)
    if reused is None:
        return None, None
    # Before one horizon has passed, the cache of the trace's start is still cold.
    warm = trace.arrival_s[inside] >= grid.horizon_s
    hits = np.bincount(window, weights=reused[inside] * warm, minlength=count)
    asked = np.bincount(window, weights=trace.prompt_tokens[inside] * warm, minlength=count)
    return _floats(hits), _floats(asked)


def _floats(values: NDArray[np.generic]) -> Floats:
    return np.asarray(values, dtype=np.float64)
