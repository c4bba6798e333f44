"""Forecasts: sure where measured, unsure elsewhere, right where the engine is the model."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.forecast import Forecaster
from tasks.domain.search.gaussian_process import GaussianProcess, expected_improvement
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation
from tasks.domain.slo import Slo
from tests.fakes.search_points import grid, observed, point

TIGHT = Slo(ttft_s=1.0, tpot_s=0.02)


def forecaster(*told: Observation, **how: bool) -> Forecaster:
    return Forecaster(
        observations=told,
        objective=Objective(slo=TIGHT, by_sustainable_rate=how.get("rate", False)),
        calibrations=Calibrations(),
        seed=0,
    )


def test_forecasts_of_unmeasured_points_rank_them_as_they_are() -> None:
    told = [observed(point(256, 8192), slo=TIGHT), observed(point(256, 512), slo=TIGHT)]
    asked = [p for p in grid().points if (p.max_num_seqs, p.max_num_batched_tokens)
             not in {(256, 8192), (256, 512)}]  # fmt: skip
    forecasts = [o.mean for o in forecaster(*told).outlooks(asked)]
    objective = Objective(slo=TIGHT)
    truths = [objective.worth(observed(p, slo=TIGHT)) for p in asked]
    assert np.corrcoef(forecasts, np.array(truths, dtype=float))[0, 1] > 0.95


def test_a_point_that_behaves_like_a_told_one_is_nearly_known() -> None:
    told = observed(point(256, 8192), slo=TIGHT)
    same, other = forecaster(told).outlooks([point(250, 8192), point(256, 512)])
    assert same.mean == pytest.approx(Objective(slo=TIGHT).worth(told), rel=0.05)
    assert same.worths.std() < other.worths.std()


def test_the_gain_is_over_the_best_and_never_negative() -> None:
    (outlook,) = forecaster(observed(point(256, 8192), slo=TIGHT)).outlooks([point(256, 512)])
    assert outlook.gain_over(1e9) == 0.0
    assert outlook.gain_over(0.0) == pytest.approx(outlook.mean)


def test_by_sustainable_rate_the_model_offers_the_load_faster_and_slower() -> None:
    told = replace(observed(point(256, 8192), slo=TIGHT), sustainable_req_s=5.0)
    same, small = forecaster(told, rate=True).outlooks([point(250, 8192), point(2, 8192)])
    assert same.mean == pytest.approx(5.0, rel=0.05)
    assert small.mean < same.mean


def test_a_process_of_two_points_passes_through_them_and_is_unsure_between() -> None:
    process = GaussianProcess.fit(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]))
    mean, sd = process.predict(np.array([[0.0], [1.0], [0.5]]))
    assert mean[:2] == pytest.approx([1.0, 3.0], abs=0.01)
    assert mean[2] == pytest.approx(2.0, abs=0.01)  # by symmetry
    assert sd[2] > 5 * sd[0]


def test_expected_improvement_at_the_best_is_the_spread_over_root_two_pi() -> None:
    gain = expected_improvement(np.array([2.0]), np.array([0.5]), 2.0)
    assert gain[0] == pytest.approx(0.5 / np.sqrt(2 * np.pi))
