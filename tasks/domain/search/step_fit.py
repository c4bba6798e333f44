"""Fits the step model's costs to the requests of measured points, and says how unsure they are.

Knows a weak prior out of the measured latencies themselves. Refuses to trust itself: what the
fitted model still gets wrong at points is forecast.py's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.search.observation import RequestRows
from tasks.domain.search.step_model import Floats, Limits, OfferedLoad, StepCosts, simulate

# The fit looks at no more requests than this, from the schedule's start, where the engine was
# empty; it bounds the seconds of fitting, and two hundred requests fix six costs well enough.
FITTED_REQUESTS = 200
# Requests of one window share their errors: the latencies of a point, TTFT and TPOT together,
# count as this many independent ones, each wrong by about MODEL_ERROR_LOG (soft L1 beyond it).
INDEPENDENT, MODEL_ERROR_LOG = 20.0, 0.2
PRIOR_SD_LOG = 1.0  # one prior standard deviation is a factor of e
DIFFERENCE, FINEST = 0.1, 0.02  # of a logarithm: over less the simulation's jumps are noise
ROUNDS, ENOUGH = 14, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPoint:
    """The limits that were in force and what the requests met."""

    limits: Limits
    rows: RequestRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Six numbers as in StepCosts.as_vector, and the covariance of their errors, shape (6, 6)."""

    vector: Floats
    covariance: Floats

    def members(self, normals: Floats) -> tuple[StepCosts, ...]:
        """Return the best costs, then one draw for each row of standard normals, shape (k, 6)."""
        root = np.linalg.cholesky(self.covariance)
        vectors = [self.vector, *(self.vector + root @ z for z in normals)]
        return tuple(StepCosts.from_vector(vector) for vector in vectors)


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
    points: Sequence[FittedPoint], *, prior: StepCosts, start: Floats | None = None
) -> Fit:
    """Return the costs under which the simulated latencies are nearest to the measured ones.

    Minimises the soft-L1 loss of log(simulated / measured) of TTFT and TPOT, each point worth
    INDEPENDENT residuals of MODEL_ERROR_LOG, with a Gaussian prior of PRIOR_SD_LOG.
    """
    cut = [(p.limits, _head(p.rows.load), p.rows) for p in points]
    centre = prior.as_vector()

    def residuals(vector: Floats) -> Floats:
        costs = StepCosts.from_vector(vector)
        parts = [_residuals(costs, limits, load, rows) for limits, load, rows in cut]
        return np.concatenate([*parts, (vector - centre) / PRIOR_SD_LOG])

    weights = np.concatenate(
        [*(np.full(2 * load.due_s.size, INDEPENDENT / (2 * load.due_s.size)) for _, load, _ in cut),
         np.ones(centre.size)]
    )  # fmt: skip
    vector, curvature = _minimise(residuals, weights, centre if start is None else start)
    return Fit(vector=vector, covariance=np.linalg.inv(curvature))


def _minimise(
    residuals: Callable[[Floats], Floats], weights: Floats, vector: Floats
) -> tuple[Floats, Floats]:
    """Return the minimum of sum w (sqrt(1 + r^2) - 1) and the curvature there.

    Gauss-Newton with Levenberg's damping and central differences, which narrow when no step
    helps: the simulation is not smooth, and a solver that expects that stops far too early.
    """
    damping, difference = 1e-2, DIFFERENCE
    here = residuals(vector)
    loss = _loss(here, weights)
    for _ in range(ROUNDS):
        curvature, slope = _normal_equations(residuals, weights, vector, here, difference)
        before = loss
        for _ in range(5):
            scale = damping * np.diag(np.diag(curvature))
            step = np.clip(np.linalg.solve(curvature + scale, -slope), -1.0, 1.0)
            there = residuals(vector + step)
            if _loss(there, weights) < loss:
                vector, here, loss = vector + step, there, _loss(there, weights)
                damping = max(damping / 5, 1e-4)
                break
            damping *= 5
        if loss == before:
            difference /= 2
        elif before - loss < ENOUGH * before:
            break
        if difference < FINEST:
            break
    return vector, curvature


def _loss(residuals: Floats, weights: Floats) -> float:
    return float((weights * (np.sqrt(1 + residuals**2) - 1)).sum())


def _normal_equations(
    residuals: Callable[[Floats], Floats],
    weights: Floats,
    vector: Floats,
    here: Floats,
    difference: float,
) -> tuple[Floats, Floats]:
    steps = difference * np.eye(vector.size)
    columns = [(residuals(vector + h) - residuals(vector - h)) / (2 * difference) for h in steps]
    slopes = np.stack(columns, axis=1)
    pull = weights / np.sqrt(1 + here**2)
    return slopes.T @ (pull[:, None] * slopes), slopes.T @ (pull * here)


def _head(load: OfferedLoad) -> OfferedLoad:
    n = FITTED_REQUESTS
    return OfferedLoad(
        due_s=load.due_s[:n],
        prompt_tokens=load.prompt_tokens[:n],
        output_tokens=load.output_tokens[:n],
    )


def _residuals(costs: StepCosts, limits: Limits, load: OfferedLoad, rows: RequestRows) -> Floats:
    """Return log(simulated / measured) / MODEL_ERROR_LOG, TTFT then TPOT; 0 where not measured."""
    seen = simulate(costs, load, limits)
    n = load.due_s.size
    both = (
        np.log(np.maximum(seen.ttft_s, 1e-9) / rows.ttft_s[:n]),
        np.log(np.maximum(seen.tpot_s, 1e-9) / rows.tpot_s[:n]),
    )
    off: Floats = np.nan_to_num(np.concatenate(both), nan=0.0, posinf=3.0, neginf=-3.0)
    return off / MODEL_ERROR_LOG
