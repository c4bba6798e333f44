"""Fits the step model's costs to the requests of measured points.

Knows a weak prior out of the measured latencies themselves, or the plan's roofline where it is
given. Refuses to trust itself: how far it is off on points it has not seen is forecast.py's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import least_squares

from tasks.domain.search.observation import RequestRows
from tasks.domain.search.step_model import (
    Floats,
    Limits,
    OfferedLoad,
    StepCosts,
    simulate,
)

# The fit looks at no more requests than this, from the schedule's start, where the engine was
# empty; it bounds the seconds of fitting, and a few hundred requests fix six costs well enough.
FITTED_REQUESTS = 400
ROBUST_LOG = 0.2  # beyond 20 % off, a request's residual counts linearly (soft L1)
PRIOR_SD_LOG = 1.0  # one prior standard deviation is a factor of e: the prior hardly binds
# Of a logarithm: the simulation moves in small jumps, over which a narrower difference sees noise.
DIFFERENCE = 0.1
STEPS, TOLERANCE = 10, 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPoint:
    """The limits that were in force and what the requests met."""

    limits: Limits
    rows: RequestRows


def prior_costs(rows: RequestRows) -> StepCosts:
    """Return costs guessed from one point's requests, before any fit.

    fixed: the smallest TPOT. per_token: lower decile of TTFT / prompt tokens. The decoding costs
    share the rise from the smallest to the median TPOT over the mean number of running requests.
    per_request: half the smallest step. overlap: one half, which says nothing.
    """
    tpot, ttft = rows.tpot_s[np.isfinite(rows.tpot_s)], rows.ttft_s
    fixed = float(tpot.min()) if tpot.size else float(np.nanmin(ttft)) / 2
    per_token = float(np.nanquantile(ttft / rows.load.prompt_tokens, 0.1))
    running = max(1.0, float(np.nansum(rows.e2e_s)) / rows.duration_s)
    context = float((rows.load.prompt_tokens + rows.load.output_tokens / 2).mean())
    rise = max(float(np.median(tpot)) - fixed, 0.1 * fixed) if tpot.size else 0.1 * fixed
    return StepCosts(
        fixed_s=fixed,
        per_token_s=per_token,
        per_sequence_s=rise / running / 4,
        per_context_s=rise / running / context / 4,
        per_request_s=fixed / 2,
        overlap_frac=0.5,
    )


def fit_costs(
    points: Sequence[FittedPoint], *, prior: StepCosts, start: StepCosts | None = None
) -> StepCosts:
    """Return the costs under which the simulated latencies are nearest to the measured ones.

    Minimises the soft-L1 loss of log(simulated / measured) over TTFT and TPOT of every request,
    each point weighing the same, with a Gaussian prior of PRIOR_SD_LOG on the logarithms.
    """
    cut = [(p.limits, _head(p.rows.load), p.rows) for p in points]
    centre = prior.as_vector()
    first = (start or prior).as_vector()

    def residuals(vector: Floats) -> Floats:
        costs = StepCosts.from_vector(np.clip(vector, -40.0, 10.0))
        parts = [_residuals(costs, limits, load, rows) for limits, load, rows in cut]
        return np.concatenate([*parts, (vector - centre) / PRIOR_SD_LOG])

    found = least_squares(
        residuals,
        first,
        jac=partial(_slopes, residuals),
        loss="soft_l1",
        f_scale=ROBUST_LOG,
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        max_nfev=STEPS,
    )
    return StepCosts.from_vector(np.clip(found.x, -40.0, 10.0))


def _slopes(residuals: Callable[[Floats], Floats], vector: Floats) -> Floats:
    """Return central differences of the residuals, shape (residuals, costs)."""
    steps = DIFFERENCE * np.eye(vector.size)
    columns = [(residuals(vector + h) - residuals(vector - h)) / (2 * DIFFERENCE) for h in steps]
    return np.stack(columns, axis=1)


def _head(load: OfferedLoad) -> OfferedLoad:
    n = FITTED_REQUESTS
    return OfferedLoad(
        due_s=load.due_s[:n],
        prompt_tokens=load.prompt_tokens[:n],
        output_tokens=load.output_tokens[:n],
    )


def _residuals(costs: StepCosts, limits: Limits, load: OfferedLoad, rows: RequestRows) -> Floats:
    seen = simulate(costs, load, limits)
    n = load.due_s.size
    both = (
        np.log(np.maximum(seen.ttft_s, 1e-9) / rows.ttft_s[:n]),
        np.log(np.maximum(seen.tpot_s, 1e-9) / rows.tpot_s[:n]),
    )
    off: Floats = np.nan_to_num(np.concatenate(both), nan=0.0, posinf=3.0, neginf=-3.0)
    return off
