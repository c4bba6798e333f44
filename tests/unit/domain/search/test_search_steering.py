"""The failing limit says which way to move."""

from dataclasses import replace

import pytest

from tasks.domain.diagnosis_rule import Rule
from tasks.domain.diagnosis_rules import FIRST_READING
from tasks.domain.search.observation import Observation, Shares
from tasks.domain.search.steering import failing_limits, move_from, without_kv_pressure
from tasks.domain.steps import TrialStatus
from tests.fakes.search_points import grid, point, unfit

# The layers that a live knob acts on; client, heat, host and roofs are not among them.
KNOB_LAYERS = {"KV memory", "scheduling", "prefill", "decode"}


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
        (seen(ttft=0.3, tpot=0.0, diagnosis=("kv-nearly-full",)), -1, 0),
        (seen(ttft=0.3, tpot=0.3, diagnosis=("queue-below-cap",)), 0, 1),
        (seen(ttft=0.1, tpot=0.3, diagnosis=("queue-below-cap",)), 0, -1),
        (seen(ttft=0.1, tpot=0.3, diagnosis=("slow-decode",)), 0, -1),
        (seen(ttft=0.3, tpot=0.1, diagnosis=("slow-prefill",)), 0, 1),
        (seen(ttft=0.3, tpot=0.1, diagnosis=("ttft-is-queueing", "slow-prefill")), 1, 1),
        (unfit(point(64, 2048)), -1, -1),
    ],
)
def test_the_move_follows_the_limit_that_fails(
    observation: Observation, seqs: int, tokens: int
) -> None:
    move = move_from(observation)
    assert move is not None
    assert (move.seqs, move.tokens) == (seqs, tokens)
    assert move.prior.source.split(":")[0] in {"catalogue", "diagnosis", "engine", "plan"}


def test_where_nothing_fails_there_is_no_move() -> None:
    assert move_from(seen(ttft=0.0, tpot=0.0)) is None


@pytest.mark.parametrize("rule", [rule for rule in FIRST_READING if rule.layer in KNOB_LAYERS])
def test_a_move_that_a_rule_of_the_diagnosis_asks_for_names_rule_and_source(rule: Rule) -> None:
    broken = (0.1, 0.3) if rule.id == "slow-decode" else (0.3, 0.0)
    move = move_from(seen(ttft=broken[0], tpot=broken[1], diagnosis=(rule.id,)))
    assert move is not None
    assert move.prior.source == f"diagnosis: {rule.id} ({rule.source})"


def test_a_point_that_must_not_be_believed_asks_for_nothing() -> None:
    late = replace(seen(ttft=0.3, tpot=0.0), status=TrialStatus.INVALID, note="the client was late")
    assert move_from(late) is None
    failed = replace(late, status=TrialStatus.FAILED)
    assert move_from(failed) is not None


def test_a_move_leads_to_what_lies_its_way_and_nowhere_else() -> None:
    move = move_from(seen(ttft=0.3, tpot=0.0, diagnosis=("queue-at-cap",)))
    assert move is not None
    led = [p for p in grid().points if move.leads(point(64, 2048), p)]
    assert [(p.max_num_seqs, p.max_num_batched_tokens) for p in led] == [(256, 2048)]


def test_the_clause_names_every_limit() -> None:
    clause = failing_limits(seen(ttft=0.25, tpot=0.5))
    assert clause == "ttft fails for 25 %, tpot fails for 50 %"


def test_no_point_above_a_full_kv_pool_is_left() -> None:
    for full, source in (
        (seen(ttft=0, tpot=0, kv=0.99), "engine: its own gauges"),
        (seen(ttft=0, tpot=0, diagnosis=("kv-pressure",)), "diagnosis: kv-pressure (guide"),
    ):
        kept, uses = without_kv_pressure([full], grid().points)
        assert {p.max_num_seqs for p in kept} == {16, 64}
        assert uses[0].source.startswith(source)
