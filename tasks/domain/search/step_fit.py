"""Fits the step model's costs to the requests of measured points, and says how unsure they are.

Knows a weak prior out of the measured latencies themselves. Refuses to trust itself: what the
fitted model still gets wrong at points is forecast.py's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.search.observation import RequestRows
from tasks.domain.search.step_model import Floats, Limits, OfferedLoad, StepCosts, simulate

# The fit looks at no more requests than this, from the schedule's start, where the engine was
# empty; it bounds the seconds of fitting, and two hundred requests fix the costs well enough.
FITTED_REQUESTS = 200
# Requests of one window share their errors: the latencies of a point, TTFT and TPOT together,
# count as this many independent ones, each wrong by about MODEL_ERROR_LOG (soft L1 beyond it).
INDEPENDENT, MODEL_ERROR_LOG = 20.0, 0.2
PRIOR_SD_LOG = 1.0  # one prior standard deviation is a factor of e
DIFFERENCE = 0.1  # of a logarithm: over less the simulation's jumps are noise
TRIES, ENOUGH, MOST_DAMPING = 30, 3e-3, 1e2
Residuals = Callable[[Floats], Floats]
_DECILES = tuple(k / 10 for k in range(1, 10))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPoint:
    """The limits that were in force and what the requests met."""

    limits: Limits
    rows: RequestRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Numbers as in StepCosts.as_vector, shape (7,), and the covariance of their errors."""

    vector: Floats
    covariance: Floats

    def members(self, normals: Floats) -> tuple[StepCosts, ...]:
        """Return the best costs, then one draw for each row of standard normals, shape (k, 7)."""
        root = np.linalg.cholesky(self.covariance)
        vectors = [self.vector, *(self.vector + root @ z for z in normals)]
        return tuple(StepCosts.from_vector(vector) for vector in vectors)


def prior_costs(rows: RequestRows) -> StepCosts:
    """Return costs guessed from one point's requests, before any fit.

    fixed: the smallest TPOT. per_token: lower decile of TTFT / prompt tokens. The decoding costs
    share the rise from the smallest to the median TPOT over the mean number of running requests.
    per_request: half the smallest step, mixed: an eighth of it. overlap: one half, which says
    nothing.
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
        mixed_s=fixed / 8,
        overlap_frac=0.5,
    )


def fit_costs(
    points: Sequence[FittedPoint], *, prior: StepCosts, start: Floats | None = None
) -> Fit:
    """Return the costs under which the simulated latencies are nearest to the measured ones.

    Minimises the soft-L1 loss of log(simulated / measured) of the deciles of TTFT and TPOT, each
    point worth INDEPENDENT residuals of MODEL_ERROR_LOG, with a Gaussian prior of PRIOR_SD_LOG.
    """
    cut = [_Compared.of(point) for point in points]
    centre = prior.as_vector()

    def residuals(vector: Floats) -> Floats:
        costs = StepCosts.from_vector(vector)
        parts = [point.residuals(costs) for point in cut]
        return np.concatenate([*parts, (vector - centre) / PRIOR_SD_LOG])

    share = np.full(cut[0].measured.size * len(cut), INDEPENDENT / cut[0].measured.size)
    weights = np.concatenate([share, np.ones(centre.size)])
    vector, curvature = _minimise(residuals, weights, centre if start is None else start)
    covariance: Floats = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return Fit(vector=vector, covariance=covariance)


def _minimise(residuals: Residuals, weights: Floats, vector: Floats) -> tuple[Floats, Floats]:
    """Return the minimum of sum w (sqrt(1 + r^2) - 1) and the curvature there.

    Gauss-Newton with Levenberg's damping. Slopes are wide differences, for the simulation moves
    in jumps; between them Broyden's update (1965) saves simulations.
    """
    here = residuals(vector)
    slopes, fresh, damping = _slopes(residuals, vector, here), True, 1e-2
    for _ in range(TRIES):
        pull = weights / np.sqrt(1 + here**2)
        curvature = slopes.T @ (pull[:, None] * slopes)
        damped = curvature + damping * np.diag(np.diag(curvature))
        step = np.clip(np.linalg.solve(damped, -slopes.T @ (pull * here)), -1.0, 1.0)
        there = residuals(vector + step)
        gain = 1 - _loss(there, weights) / _loss(here, weights)
        if gain > 0:
            slopes = slopes + np.outer(there - here - slopes @ step, step) / (step @ step)
            vector, here, damping = vector + step, there, max(damping / 5, 1e-4)
        elif fresh:
            damping *= 8
        if gain < ENOUGH and ((fresh and gain > 0) or damping > MOST_DAMPING):
            break
        if gain < ENOUGH and not fresh:
            slopes, fresh = _slopes(residuals, vector, here), True
        else:
            fresh = fresh and gain <= 0
    slopes = slopes if fresh else _slopes(residuals, vector, here)
    pull = weights / np.sqrt(1 + here**2)
    return vector, slopes.T @ (pull[:, None] * slopes)


def _loss(residuals: Floats, weights: Floats) -> float:
    return float((weights * (np.sqrt(1 + residuals**2) - 1)).sum()) + 1e-12


def _slopes(residuals: Residuals, vector: Floats, here: Floats) -> Floats:
    """Return forward differences of the residuals, shape (residuals, costs)."""
    steps = DIFFERENCE * np.eye(vector.size)
    return np.stack([(residuals(vector + h) - here) / DIFFERENCE for h in steps], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Compared:
    """A point's first requests by thirds of prompt length, and what they met."""

    limits: Limits
    load: OfferedLoad
    thirds: tuple[NDArray[np.intp], ...]
    measured: Floats

    @classmethod
    def of(cls, point: FittedPoint) -> "_Compared":
        rows, n = point.rows, FITTED_REQUESTS
        load = OfferedLoad(
            due_s=rows.load.due_s[:n],
            prompt_tokens=rows.load.prompt_tokens[:n],
            output_tokens=rows.load.output_tokens[:n],
        )
        order = np.argsort(load.prompt_tokens, kind="stable")
        thirds = tuple(np.array_split(order, min(3, order.size)))
        measured = _log_deciles((rows.ttft_s[:n], rows.tpot_s[:n]), thirds)
        return cls(limits=point.limits, load=load, thirds=thirds, measured=measured)

    def residuals(self, costs: StepCosts) -> Floats:
        """Return log(simulated / measured) / MODEL_ERROR_LOG; 0 where nothing was measured."""
        seen = simulate(costs, self.load, self.limits)
        off = _log_deciles((seen.ttft_s, seen.tpot_s), self.thirds) - self.measured
        clean: Floats = np.nan_to_num(off, nan=0.0) / MODEL_ERROR_LOG
        return clean


def _log_deciles(latencies: Sequence[Floats], groups: Sequence[NDArray[np.intp]]) -> Floats:
    """Return logarithms of the nine deciles of each latency in each group, concatenated.

    Deciles move smoothly with the costs; a single request's latency jumps with its place in a
    batch. Thirds by prompt length keep apart what a prompt costs and what waiting costs.
    """
    parts = [
        np.nanquantile(seconds[group], _DECILES)
        if np.isfinite(seconds[group]).any()
        else np.full(len(_DECILES), np.nan)
        for seconds in latencies
        for group in groups
    ]
    logs: Floats = np.log(np.maximum(np.concatenate(parts), 1e-9))
    return logs
