"""The fit finds the costs of an engine that is exactly the model."""

import numpy as np
import pytest

from tasks.domain.search.step_fit import FittedPoint, fit_costs, prior_costs
from tasks.domain.search.step_model import Limits, StepCosts, simulate
from tests.fakes.search_points import COSTS, point, served, steady_load


def fitted_at(*limits: tuple[int, int]) -> StepCosts:
    points = [
        FittedPoint(
            limits=Limits(max_num_seqs=s, max_num_batched_tokens=t), rows=served(point(s, t))
        )
        for s, t in limits
    ]
    return StepCosts.from_vector(fit_costs(points, prior=prior_costs(points[0].rows)).vector)


def test_the_cost_of_a_prompt_token_is_found_from_the_default_alone() -> None:
    assert fitted_at((256, 8192)).per_token_s == pytest.approx(COSTS.per_token_s, rel=0.1)


def test_two_points_predict_a_third_within_a_tenth() -> None:
    costs = fitted_at((256, 8192), (256, 512))
    asked = Limits(max_num_seqs=16, max_num_batched_tokens=2048)
    truth = served(point(16, 2048))
    seen = simulate(costs, steady_load(), asked)
    for measured, simulated in ((truth.ttft_s, seen.ttft_s), (truth.tpot_s, seen.tpot_s)):
        assert np.median(simulated) == pytest.approx(np.median(measured), rel=0.1)


def test_unseen_costs_stay_unsure() -> None:
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=8192)
    rows = served(point(256, 8192))
    fit = fit_costs([FittedPoint(limits=limits, rows=rows)], prior=prior_costs(rows))
    spread = np.sqrt(np.diag(fit.covariance))
    token, request = spread[1], spread[4]
    assert token < 0.1 < request < 1.0
    assert len(fit.members(np.zeros((3, 7)))) == 4


def test_failed_requests_do_not_stop_the_fit() -> None:
    rows = served(point(256, 8192))
    rows.ttft_s[:5] = np.nan
    rows.tpot_s[:5] = np.nan
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=8192)
    fit = fit_costs([FittedPoint(limits=limits, rows=rows)], prior=prior_costs(rows))
    assert np.isfinite(fit.vector).all()
