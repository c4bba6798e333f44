"""Optuna behind the protocol: open points only, and the same ask after a restart."""

import pytest

from tasks.adapters.optuna_search import OptunaPolicy, has_gp_sampler
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import Proposal, Stop
from tasks.domain.slo import Slo
from tasks.domain.steps import TrialStatus
from tests.fakes.search_points import grid, observed, unfit

SLO = Slo(ttft_s=0.4, tpot_s=0.012)
SPACE = grid(seqs=(16, 256), tokens=(512, 2048, 8192))


def policy(seed: int = 3, sampler: str = "tpe") -> OptunaPolicy:
    ledger = Ledger(space=SPACE, objective=Objective(slo=SLO, min_gain_frac=0.0))
    return OptunaPolicy(ledger=ledger, seed=seed, sampler=sampler)


def run(asked: OptunaPolicy) -> list[Observation]:
    told: list[Observation] = []
    while not isinstance(answer := asked.ask(), Stop):
        failing = len(told) == 2
        where = answer.point
        told.append(unfit(where, TrialStatus.FAILED) if failing else observed(where, slo=SLO))
        asked.tell(told[-1])
    return told


def test_tpe_asks_every_point_once_the_reference_first() -> None:
    points = [o.point for o in run(policy())]
    assert points[0] == SPACE.reference
    assert set(points) == set(SPACE.points)
    assert len(points) == len(SPACE.points)


def test_tpe_resumed_after_any_prefix_asks_the_same() -> None:
    told = run(policy())
    for cut in range(len(told)):
        resumed = policy()
        for observation in told[:cut]:
            resumed.tell(observation)
        answer = resumed.ask()
        assert isinstance(answer, Proposal)
        assert answer.point == told[cut].point


@pytest.mark.skipif(not has_gp_sampler(), reason="Optuna's GP sampler needs torch")
def test_the_gp_sampler_asks_open_points_only() -> None:
    points = [o.point for o in run(policy(sampler="gp"))]
    assert len(set(points)) == len(points) == len(SPACE.points)
