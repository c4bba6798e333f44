"""Replays: how points, seconds and regret are counted."""

import pytest

from tasks.domain.errors import InvalidParameterError
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.protocol import NO_LIMIT, Budget
from tasks.domain.search.random_grid import GridPolicy, RandomPolicy
from tasks.domain.search.replay import (
    MeasuredTable,
    TablePoint,
    good_points,
    is_selective,
    replay,
    score,
    table_worths,
)
from tasks.domain.slo import Slo
from tests.fakes.search_points import point, served

SLO = Slo(ttft_s=0.5, tpot_s=0.02)
OBJECTIVE = Objective(slo=SLO, min_gain_frac=0.0)


def table() -> MeasuredTable:
    limits = [(256, 8192), (256, 512), (16, 8192), (256, 8192), (16, 512), (4, 512)]
    points = tuple(
        TablePoint(
            max_num_seqs=s,
            max_num_batched_tokens=t,
            order=i,
            wall_s=10.0 + i,
            rows=served(point(s, t)),
        )
        for i, (s, t) in enumerate(limits)
    )
    return MeasuredTable(name="made", points=points)


def grid_policy(seed: int, budget: Budget = NO_LIMIT) -> GridPolicy:
    ledger = Ledger(space=table().space(), objective=OBJECTIVE, budget=budget)
    return GridPolicy(ledger=ledger)


def test_a_repeat_is_no_point_of_its_own_and_the_first_measured_is_the_default() -> None:
    space = table().space()
    assert len(space.points) == 5
    assert (space.reference.max_num_seqs, space.reference.max_num_batched_tokens) == (256, 8192)
    assert [p.max_num_seqs for p in space.points] == [4, 16, 16, 256, 256]


def test_only_measured_points_can_be_looked_up() -> None:
    with pytest.raises(InvalidParameterError, match="was not measured"):
        table().observation(point(8, 8), SLO)


def test_points_and_seconds_count_up_to_the_first_good_one_without_the_default() -> None:
    worths = table_worths(table(), OBJECTIVE)
    good = good_points(worths)
    made = replay(table(), OBJECTIVE, grid_policy, seed=0)
    first = next(i for i, p in enumerate(made.asked) if p in good)
    walls = {(4, 512): 15.0, (16, 512): 14.0, (16, 8192): 12.0, (256, 512): 11.0}
    spent = [walls[p.max_num_seqs, p.max_num_batched_tokens] for p in made.asked[1 : first + 1]]
    assert made.reached
    assert made.points == first > 0
    assert made.gpu_s == sum(spent)


def test_regret_falls_to_zero_once_all_points_are_asked() -> None:
    made = replay(table(), OBJECTIVE, grid_policy, seed=0)
    assert len(made.regrets) == 5
    assert list(made.regrets) == sorted(made.regrets, reverse=True)
    assert made.regrets[-1] == pytest.approx(0.0)
    worths = table_worths(table(), OBJECTIVE)
    first = worths[table().space().reference] / max(worths.values())
    assert made.regrets[0] == pytest.approx(1 - first)


def test_stopping_before_a_good_point_counts_as_measuring_all() -> None:
    made = replay(table(), OBJECTIVE, lambda s: grid_policy(s, Budget(trials=1)), seed=0)
    assert not made.reached
    assert made.points == 4
    assert made.regrets[0] == made.regrets[-1] > 0


def test_a_score_summarises_replays_of_seeds() -> None:
    def make(seed: int) -> RandomPolicy:
        return RandomPolicy(ledger=Ledger(space=table().space(), objective=OBJECTIVE), seed=seed)

    replays = [replay(table(), OBJECTIVE, make, seed=s) for s in range(12)]
    result = score("random", replays)
    assert result.replays == 12
    assert result.reached_frac == 1.0
    assert 1 <= result.points_median <= result.points_p90 <= 4


def test_a_table_is_selective_only_where_few_points_are_good_and_the_default_is_not() -> None:
    assert is_selective(table(), OBJECTIVE)
    assert not is_selective(table(), Objective(slo=Slo(ttft_s=60.0, tpot_s=1.0)))
