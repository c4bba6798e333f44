"""The failing limit says which way to move."""

import pytest

from tasks.domain.search.observation import Observation, Shares
from tasks.domain.search.steering import failing_limits, move_from, without_kv_pressure
from tasks.domain.steps import TrialStatus
from tests.fakes.search_points import grid, point, unfit


def seen(
    *, ttft: float, tpot: float, waiting: float | None = None, running: float | None = None,
    diagnosis: tuple[str, ...] = (), kv: float | None = None,
) -> Observation:  # fmt: skip
    return Observation(
        point=point(64, 2048),
        status=TrialStatus.COMPLETE,
        gpu_s=15.0,
        shares=Shares(attainment_frac=0.5, broken=(("ttft", ttft), ("tpot", tpot))),
        waiting_mean=waiting,
        running_max=running,
        kv_peak_frac=kv,
        diagnosis=diagnosis,
    )


@pytest.mark.parametrize(
    ("observation", "seqs", "tokens"),
    [
        (seen(ttft=0.0, tpot=0.3), 0, -1),
        (seen(ttft=0.3, tpot=0.0), 0, 1),
        (seen(ttft=0.3, tpot=0.0, waiting=4.0, running=64), 1, 0),
        (seen(ttft=0.3, tpot=0.0, waiting=4.0, running=20), 0, 1),
        (seen(ttft=0.1, tpot=0.3), 0, -1),
        (seen(ttft=0.3, tpot=0.1, kv=0.99), -1, 0),
        (seen(ttft=0.0, tpot=0.0, diagnosis=("kv-pressure",)), -1, 0),
        (seen(ttft=0.0, tpot=0.0, diagnosis=("queue-at-cap",)), 1, 0),
        (unfit(point(64, 2048)), -1, -1),
    ],
)
def test_the_move_follows_the_limit_that_fails(
    observation: Observation, seqs: int, tokens: int
) -> None:
    move = move_from(observation)
    assert move is not None
    assert (move.seqs, move.tokens) == (seqs, tokens)
    assert move.prior.source.split(":")[0] in {"catalogue", "diagnosis", "plan"}


def test_where_nothing_fails_there_is_no_move() -> None:
    assert move_from(seen(ttft=0.0, tpot=0.0)) is None


def test_the_clause_names_every_limit() -> None:
    clause = failing_limits(seen(ttft=0.25, tpot=0.5))
    assert clause == "ttft fails for 25 %, tpot fails for 50 %"


def test_no_point_above_a_full_kv_pool_is_left() -> None:
    kept, uses = without_kv_pressure([seen(ttft=0, tpot=0, kv=0.99)], grid().points)
    assert {p.max_num_seqs for p in kept} == {16, 64}
    assert uses[0].source == "diagnosis: kv-pressure"
