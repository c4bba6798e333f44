"""Every policy keeps the protocol: no point twice, none outside, budget kept, resumable."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.catalogue.row import Scenario
from tasks.domain.errors import InvalidParameterError
from tasks.domain.parameters import ParameterValues, Regime
from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.forecast import Outlook
from tasks.domain.search.gp_policy import GpPolicy
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation
from tasks.domain.search.ours import OurPolicy, most_promising
from tasks.domain.search.protocol import NO_LIMIT, Budget, Policy, Proposal, Stop
from tasks.domain.search.random_grid import GridPolicy, RandomPolicy
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.search.start import search_start
from tasks.domain.search.start_points import starting_points
from tasks.domain.search.steering import move_from
from tasks.domain.slo import Slo
from tasks.domain.steps import TrialStatus
from tests.fakes.search_points import SLO, grid, observed, point, unfit

TIGHT = Slo(ttft_s=0.4, tpot_s=0.012)
SPACE = grid(seqs=(16, 256), tokens=(512, 8192))
Maker = Callable[[Ledger, int], Policy]
MAKERS: dict[str, Maker] = {
    "ours": lambda ledger, seed: OurPolicy(ledger=ledger, seed=seed),
    "gp": lambda ledger, seed: GpPolicy(ledger=ledger, seed=seed),
    "random": lambda ledger, seed: RandomPolicy(ledger=ledger, seed=seed),
    "grid": lambda ledger, seed: GridPolicy(ledger=ledger),
}
MEMORY = {ParameterValues(): Calibrations()}  # every engine of this file behaves alike
every_policy = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def ledger_of(space: SearchSpace = SPACE, *, slo: Slo = TIGHT, budget: Budget = NO_LIMIT) -> Ledger:
    return Ledger(space=space, objective=Objective(slo=slo, min_gain_frac=0.0), budget=budget)


def outcome(where: Point, *, fails: bool) -> Observation:
    return unfit(where, TrialStatus.FAILED) if fails else observed(where, slo=TIGHT)


def run(policy: Policy, failing: frozenset[int] = frozenset()) -> list[Observation]:
    told: list[Observation] = []
    while not isinstance(answer := policy.ask(), Stop):
        told.append(outcome(answer.point, fails=len(told) in failing))
        policy.tell(told[-1])
    return told


@every_policy
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 3), failing=st.frozensets(st.integers(0, 3), max_size=1))
def test_no_point_is_asked_twice_and_none_outside_the_space(
    make: Maker, seed: int, failing: frozenset[int]
) -> None:
    policy = make(ledger_of(), seed)
    if isinstance(policy, OurPolicy):
        policy.calibrations = MEMORY
    asked = [o.point for o in run(policy, failing)]
    assert asked[0] == SPACE.reference
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(SPACE.points)


@every_policy
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 50), failing=st.frozensets(st.integers(0, 3), max_size=1))
def test_a_policy_resumed_after_any_prefix_asks_the_same(
    make: Maker, seed: int, failing: frozenset[int]
) -> None:
    told = run(make(ledger_of(), seed), failing)
    for cut in range(len(told)):
        resumed = make(ledger_of(), seed)
        for observation in told[:cut]:
            resumed.tell(observation)
        answer = resumed.ask()
        assert isinstance(answer, Proposal)
        assert answer.point == told[cut].point
        assert resumed.ask() == answer


@every_policy
def test_a_budget_of_trials_ends_the_search(make: Maker) -> None:
    policy = make(ledger_of(budget=Budget(trials=2)), 0)
    assert len(run(policy)) == 2
    answer = policy.ask()
    assert isinstance(answer, Stop)
    assert answer.code == "TRIALS"


@every_policy
def test_a_budget_of_gpu_minutes_is_not_exceeded(make: Maker) -> None:
    # 15 s a point: after two points 30 s are spent and a third would make 45 of 36
    told = run(make(ledger_of(budget=Budget(gpu_minutes=0.6)), 0))
    assert sum(o.gpu_s for o in told) <= 36.0
    assert len(told) == 2


def test_the_search_stops_at_a_ceiling_that_nothing_can_beat() -> None:
    policy = RandomPolicy(ledger=ledger_of(slo=Slo(ttft_s=60.0, tpot_s=1.0)), seed=0)
    policy.tell(observed(SPACE.reference, slo=Slo(ttft_s=60.0, tpot_s=1.0)))
    policy.ledger.objective = Objective(slo=SLO, min_gain_frac=0.01)
    answer = policy.ask()
    assert isinstance(answer, Stop)
    assert answer.code == "CEILING"


def test_what_is_larger_than_an_infeasible_point_is_never_asked() -> None:
    policy = GridPolicy(ledger=ledger_of())
    policy.tell(observed(SPACE.reference, slo=TIGHT))
    policy.tell(unfit(point(16, 512, overrides=2)))
    assert policy.ledger.open_points() == ()
    (use,) = policy.ledger.exclusions()
    assert "2 larger points are not asked" in use.sentence


@pytest.mark.parametrize("make", [MAKERS["random"], MAKERS["ours"]])
def test_a_told_point_or_one_from_outside_is_refused(make: Maker) -> None:
    policy = make(ledger_of(), 0)
    policy.tell(observed(SPACE.reference, slo=TIGHT))
    with pytest.raises(InvalidParameterError, match="told already") as twice:
        policy.tell(observed(SPACE.reference, slo=TIGHT))
    assert twice.value.code == "DUPLICATE_TRIAL"
    with pytest.raises(InvalidParameterError, match="outside the space"):
        policy.tell(observed(point(99, 512), slo=TIGHT))


def test_ours_logs_a_source_for_every_prior_that_it_uses() -> None:
    space = grid()
    policy = OurPolicy(ledger=ledger_of(space), seed=0, starts=starting_points(space))
    policy.tell(observed(space.reference, slo=TIGHT))
    answer = policy.ask()
    assert isinstance(answer, Proposal)
    assert answer.priors
    assert all(use.source and use.sentence for use in answer.priors)
    assert answer.priors[0].source.startswith("step model")
    assert answer.forecast is not None


def outlook(seqs: int, *worths: float) -> Outlook:
    return Outlook(point=point(seqs, 2048, overrides=1), worths=np.array(worths))


def test_of_gains_that_are_alike_the_one_that_the_diagnosis_points_to_is_asked() -> None:
    # Gains over 10: 4.0, 3.8 and 3.0; within a tenth of the largest are the first two.
    outlooks = (outlook(64, 14.0), outlook(128, 13.8), outlook(256, 13.0))
    best, second, third = (o.point for o in outlooks)
    assert most_promising(outlooks, best=10.0).point == best
    pointed = most_promising(outlooks, best=10.0, pointed=frozenset({second, third}))
    assert pointed.point == second
    start = most_promising(outlooks, best=10.0, starts=frozenset({second}))
    assert start.point == second
    far = most_promising(outlooks, best=10.0, pointed=frozenset({third}))
    assert far.point == best


def test_where_no_gain_is_forecast_the_highest_mean_decides() -> None:
    outlooks = (outlook(64, 8.0), outlook(128, 9.0))
    found = most_promising(outlooks, best=10.0, pointed=frozenset({outlooks[0].point}))
    assert found.point.max_num_seqs == 128


def test_ours_weighs_every_start_once_and_names_a_move_only_where_it_was_followed() -> None:
    space = grid()
    start = search_start(Regime.PEAK, TIGHT, asked=Scenario.ONLINE_CHAT)
    policy = OurPolicy(ledger=ledger_of(space), seed=0, starts=starting_points(space, start))
    reference = observed(space.reference, slo=TIGHT)
    policy.tell(reference)
    first = policy.ask()
    assert isinstance(first, Proposal)
    (weighed,) = [p for p in first.priors if "guide's values for online chat" in p.source]
    assert "(max_num_seqs=16, max_num_batched_tokens=8192) is forecast at" in weighed.sentence
    move = move_from(reference)
    assert move is not None
    assert (move.prior in first.priors) is move.leads(space.reference, first.point)
    policy.tell(observed(first.point, slo=TIGHT))
    second = policy.ask()
    assert isinstance(second, Proposal)
    assert second.point not in {p for p, _ in policy.starts}
    assert not [p for p in second.priors if "guide's values" in p.source]


def test_remembered_fits_change_no_answer() -> None:
    fresh, remembering = (OurPolicy(ledger=ledger_of(), seed=1) for _ in range(2))
    remembering.calibrations = MEMORY
    assert [o.point for o in run(fresh)] == [o.point for o in run(remembering)]


def test_ours_lowers_the_budget_where_only_tpot_fails() -> None:
    space = grid()
    policy = OurPolicy(ledger=ledger_of(space, slo=Slo(ttft_s=3.0, tpot_s=0.02)), seed=0)
    policy.tell(observed(space.reference, slo=Slo(ttft_s=3.0, tpot_s=0.02)))
    answer = policy.ask()
    assert isinstance(answer, Proposal)
    assert answer.point.max_num_batched_tokens < space.reference.max_num_batched_tokens


def test_ours_without_requests_to_fit_begins_with_the_starts_and_then_moves() -> None:
    space = grid()
    failed = Observation(point=space.reference, status=TrialStatus.FAILED, gpu_s=1.0)
    policy = OurPolicy(ledger=ledger_of(space), seed=0)
    policy.tell(failed)
    answer = policy.ask()
    assert isinstance(answer, Proposal)
    assert (answer.point.max_num_seqs, answer.point.max_num_batched_tokens) == (64, 8192)
    assert answer.priors[0].source.startswith("plan")


def test_ours_carries_the_best_point_over_to_the_next_cell() -> None:
    inner = grid(seqs=(16, 256), tokens=(512, 8192)).points
    other = tuple(
        Point(
            cell=ParameterValues.of({"enable_prefix_caching": False}),
            max_num_seqs=p.max_num_seqs,
            max_num_batched_tokens=p.max_num_batched_tokens,
            overrides=p.overrides + 1,
        )
        for p in inner
    )
    space = SearchSpace(points=inner + other, reference=inner[-1])
    told = run(OurPolicy(ledger=ledger_of(space), seed=0))
    cells = [o.point.cell for o in told]
    first = cells.index(other[0].cell)
    assert set(cells[:first]) == {ParameterValues()}
    assert set(cells[first:]) == {other[0].cell}
    best = Objective(slo=TIGHT, min_gain_frac=0.0).best(told[:first])
    assert best is not None
    entered = told[first].point
    assert entered.max_num_seqs == best.point.max_num_seqs
    assert entered.max_num_batched_tokens == best.point.max_num_batched_tokens
