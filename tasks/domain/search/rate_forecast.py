"""What sustainable rate unmeasured points are expected to have: the step model at other rates.

The same requests are offered faster or slower until the share inside the SLO passes the target.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.observation import Observation, RequestRows, judge_rows
from tasks.domain.search.space import Point
from tasks.domain.search.step_model import Floats, Simulated, simulate
from tasks.domain.slo import Slo

LOWEST, HIGHEST = 1 / 16, 16.0
HALVINGS = 4  # of a factor of two: the rate is known within 2^(1/16), 4 %


def rate_logs(
    observations: tuple[Observation, ...],
    points: Sequence[Point],
    *,
    slo: Slo,
    rows: RequestRows,
    calibrations: Calibrations,
) -> Floats:
    """Return log(sustainable rate in req/s) of each point under the best fitted costs."""
    costs = calibrations.members(observations)[0]

    def keeps(point: Point, multiple: float) -> bool:
        load = rows.load.faster(multiple)
        seen = simulate(costs, load, calibrations.limits(point))
        return judged(seen, rows, slo) >= slo.attainment_frac

    offered = math.log(rows.ttft_s.size / rows.duration_s)
    return np.array([offered + math.log(_largest(partial(keeps, point))) for point in points])


def forecast_multiple(
    observations: tuple[Observation, ...], point: Point, *, slo: Slo, calibrations: Calibrations
) -> float | None:
    """Return the multiple of the observed rate that a point should sustain, None without rows.

    observations: with rows, in the order in which they came.
    """
    rows = observations[0].rows if observations else None
    if rows is None:
        return None
    logs = rate_logs(observations, [point], slo=slo, rows=rows, calibrations=calibrations)
    return math.exp(float(logs[0])) * rows.duration_s / rows.ttft_s.size


def judged(seen: Simulated, rows: RequestRows, slo: Slo) -> float:
    """Return the share of simulated requests inside the SLO."""
    simulated = RequestRows(
        load=rows.load,
        ttft_s=seen.ttft_s,
        tpot_s=seen.tpot_s,
        e2e_s=seen.e2e_s,
        duration_s=rows.duration_s,
    )
    return judge_rows(simulated, slo).attainment_frac


def _largest(keeps: Callable[[float], bool]) -> float:
    """Return the largest multiple that keeps the target, bracketed by two, then halved."""
    low, high = 1.0, 2.0
    if keeps(1.0):
        while high < HIGHEST and keeps(high):
            low, high = high, 2 * high
    else:
        low, high = 0.5, 1.0
        while low > LOWEST and not keeps(low):
            low, high = low / 2, low
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
