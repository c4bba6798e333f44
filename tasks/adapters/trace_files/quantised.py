"""Stamps that lie on a coarse grid: find the grid and spread the requests inside its buckets.

Replayed as they are, a three-second grid sends ten requests at once every three seconds, and p99
TTFT measures the grid instead of the engine.
"""

import numpy as np
from numpy.typing import NDArray

FEWEST_ROWS = 50
FINEST_STEP_S = 0.5
PHASE_TOLERANCE = 0.01
ON_GRID_FRAC = 0.99


def grid_step_s(arrival_s: NDArray[np.float64]) -> float | None:
    """Return the grid's step in seconds, or None where sorted arrivals lie on no coarse grid.

    A grid needs at least two requests a distinct stamp on average and 99 % of the stamps within
    1 % of a multiple of the step (Mooncake's stamps are off by up to 3 ms).
    """
    if arrival_s.size < FEWEST_ROWS:
        return None
    gaps = np.diff(arrival_s)
    steps = gaps[gaps >= FINEST_STEP_S / 2]
    if steps.size < 2 or arrival_s.size < 2 * (steps.size + 1):
        return None
    step = float(np.median(steps))
    if step < FINEST_STEP_S:
        return None
    step = round(step, 2)
    phase = np.abs(arrival_s / step - np.round(arrival_s / step))
    return step if float(np.mean(phase <= PHASE_TOLERANCE)) >= ON_GRID_FRAC else None


def spread(
    arrival_s: NDArray[np.float64], *, step_s: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return sorted arrivals with each bucket's requests spread uniformly over the bucket.

    Requests keep their order inside a bucket. Shape (n,), starting at 0 again.
    """
    bucket = np.round(arrival_s / step_s)
    moved = (bucket + rng.random(arrival_s.size)) * step_s
    moved.sort()  # buckets do not overlap, so sorting only orders the draws inside a bucket
    return np.asarray(moved - moved[0])
