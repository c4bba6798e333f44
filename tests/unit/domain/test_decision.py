"""Every gate and every outcome; nothing that is not known to be passed is promoted."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.codec import from_text, to_text
from tasks.domain.decision import (
    ArmEvidence,
    Decision,
    DecisionOutcome,
    Gates,
    Reason,
    StudyEvidence,
    decide,
)
from tasks.domain.endpoint import Checkpoint
from tasks.domain.errors import PermanentError
from tasks.domain.validity import Flag
from tests.fakes.window_measurements import run

GATES = Gates(min_gain_frac=0.05, noise_floor_frac=0.01, accuracy_margin_frac=0.01)
BF16 = Checkpoint(model="m", method="none", sha256="a" * 64, serve_as="reference", dtype="bfloat16")
AWQ = Checkpoint(model="m", method="awq", sha256="b" * 64, serve_as="packed", dtype="bfloat16")
INVALID = Flag(code="CLIENT_SEND_LATE", sentence="send lag p99 90.0 ms of n=600", invalid=True)
ERRORS = Flag(code="ERROR_RATE", sentence="12 of n=600 requests failed", invalid=False)


def reference(**changes: object) -> ArmEvidence:
    arm = ArmEvidence(
        name="incumbent",
        checkpoint=BF16,
        is_reference=True,
        measurements=(run(*[70] * 6),),
        slo_ok=False,
    )
    return replace(arm, **changes)  # type: ignore[arg-type]


def challenger(**changes: object) -> ArmEvidence:
    arm = ArmEvidence(
        name="tuned",
        checkpoint=BF16,
        is_reference=False,
        measurements=(run(*[95] * 6),),
        slo_ok=True,
        overrides=2,
    )
    return replace(arm, **changes)  # type: ignore[arg-type]


def decided(*arms: ArmEvidence, gates: Gates = GATES) -> Decision:
    return decide(StudyEvidence(regime="peak", arms=arms, seed=1), gates=gates)


def answer(decision: Decision, gate: str) -> Reason:
    (found,) = [reason for reason in decision.reasons if reason.gate == gate]
    return found


def test_a_challenger_that_passes_every_gate_is_promoted() -> None:
    found = decided(reference(), challenger())
    assert found.outcome is DecisionOutcome.PROMOTE
    assert found.winner == "tuned"
    assert found.compared == ("incumbent", "tuned")
    assert [(r.gate, r.passed) for r in found.reasons] == [
        ("valid", True),
        ("accurate", True),
        ("slo", True),
        ("better", True),
    ]
    assert "+35.71%" in answer(found, "better").sentence  # 95 / 70 - 1
    assert all("n=" in reason.sentence for reason in found.reasons)
    assert found.would_change == ()


def test_a_challenger_that_is_no_better_keeps_the_reference() -> None:
    found = decided(reference(slo_ok=True), challenger(measurements=(run(*[71] * 6),)))
    assert (found.outcome, found.winner) == (DecisionOutcome.KEEP, None)
    assert answer(found, "better").passed is False
    said = answer(found, "discriminating")
    assert said.passed is False
    assert "not discriminating" in said.sentence
    assert "+1.43%" in said.sentence  # 71 / 70 - 1


def test_a_worse_challenger_is_rejected() -> None:
    found = decided(reference(), challenger(measurements=(run(*[50] * 6),)))
    assert (found.outcome, found.winner) == (DecisionOutcome.REJECT, None)
    assert decided(reference()).outcome is DecisionOutcome.KEEP  # nobody challenges it


def test_invalid_measurements_are_inconclusive_not_a_rejection() -> None:
    found = decided(reference(), challenger(flags=(INVALID,)))
    assert found.outcome is DecisionOutcome.INCONCLUSIVE
    assert answer(found, "valid").passed is None
    assert "CLIENT_SEND_LATE" in answer(found, "valid").sentence
    assert "a believable measurement of tuned" in found.would_change
    assert found.compared == ()


def test_an_infeasible_challenger_is_rejected() -> None:
    found = decided(
        reference(), challenger(infeasible="KV cache holds 0 tokens", measurements=(), slo_ok=None)
    )
    assert found.outcome is DecisionOutcome.REJECT
    assert "KV cache holds 0 tokens" in answer(found, "valid").sentence


@pytest.mark.parametrize(
    "broken",
    [
        {"flags": (INVALID,)},
        {"infeasible": "the engine died"},
        {"measurements": ()},
        {"measurements": (replace(run(*[70] * 6), flags=(INVALID,)),)},
    ],
)
def test_a_reference_that_failed_makes_it_inconclusive(broken: dict[str, object]) -> None:
    found = decided(reference(**broken), challenger())
    assert (found.outcome, found.winner) == (DecisionOutcome.INCONCLUSIVE, None)
    assert "the reference incumbent" in found.reasons[0].sentence


def test_a_reference_with_errors_may_be_replaced_and_a_challenger_with_errors_may_not_win() -> None:
    assert decided(reference(flags=(ERRORS,)), challenger()).outcome is DecisionOutcome.PROMOTE
    found = decided(reference(), challenger(flags=(ERRORS,)))
    assert found.outcome is DecisionOutcome.REJECT
    assert answer(found, "slo").passed is False


def test_a_faster_challenger_outside_the_slo_is_not_promoted() -> None:
    found = decided(reference(), challenger(measurements=(run(*[85] * 6),), slo_ok=False))
    assert found.outcome is DecisionOutcome.REJECT
    assert "85.00% of n=600 requests kept the SLO" in answer(found, "slo").sentence
    assert any("no arm keeps the SLO" in change for change in found.would_change)
    assert decided(reference(), challenger(slo_ok=None)).outcome is DecisionOutcome.INCONCLUSIVE


def test_too_few_windows_are_inconclusive_and_say_how_much_load_would_decide() -> None:
    found = decided(
        reference(measurements=(run(70, 70, 70, 70),)),
        challenger(measurements=(run(95, 95, 95, 95),)),
    )
    assert found.outcome is DecisionOutcome.INCONCLUSIVE
    assert found.would_change == ("about 60 s more load for tuned",)  # 2 windows of 30 s


def test_without_an_a_a_pair_nothing_is_promoted() -> None:
    found = decided(reference(), challenger(), gates=replace(GATES, noise_floor_frac=None))
    assert found.outcome is DecisionOutcome.INCONCLUSIVE
    assert "an A/A pair of the reference, which sets the noise floor" in found.would_change


@pytest.mark.parametrize(
    ("verdict", "outcome", "passed"),
    [
        ("PASS", DecisionOutcome.PROMOTE, True),
        ("FAIL", DecisionOutcome.REJECT, False),
        ("INCONCLUSIVE", DecisionOutcome.INCONCLUSIVE, None),
        (None, DecisionOutcome.INCONCLUSIVE, None),
    ],
)
def test_another_checkpoint_needs_a_pass_of_its_accuracy(
    verdict: str | None, outcome: DecisionOutcome, passed: bool | None
) -> None:
    awq = challenger(
        checkpoint=AWQ,
        accuracy_verdict=verdict,
        accuracy_reason="drop at most 1.4 points (n=200)",
        accuracy_items_needed=3000,
    )
    found = decided(reference(), awq)
    assert found.outcome is outcome
    assert answer(found, "accurate").passed is passed
    if passed is None:
        assert "n=3000 items would decide" in answer(found, "accurate").sentence
        assert "an accuracy evaluation of tuned with n=3000 items" in found.would_change


def test_values_that_change_the_numbers_need_an_accuracy_verdict_too() -> None:
    fp8_cache = challenger(changes_numerics=True)
    assert decided(reference(), fp8_cache).outcome is DecisionOutcome.INCONCLUSIVE
    passed = replace(fp8_cache, accuracy_verdict="PASS", accuracy_reason="n=14042")
    assert decided(reference(), passed).outcome is DecisionOutcome.PROMOTE


def test_synthetic_weights_win_within_a_checkpoint_and_never_across() -> None:
    dummy, dummy_awq = replace(BF16, synthetic=True), replace(AWQ, synthetic=True)
    within = decided(reference(checkpoint=dummy), challenger(checkpoint=dummy))
    assert within.outcome is DecisionOutcome.PROMOTE
    across = decided(
        reference(checkpoint=dummy), challenger(checkpoint=dummy_awq, accuracy_verdict="PASS")
    )
    assert across.outcome is DecisionOutcome.INCONCLUSIVE
    assert "no promotion across checkpoints" in answer(across, "accurate").sentence


@pytest.mark.parametrize("good", [50, 70, 95])
def test_the_speed_of_an_emulated_kernel_neither_promotes_nor_rejects(good: int) -> None:
    emulated = challenger(
        checkpoint=replace(AWQ, serve_as="dequantized"),
        accuracy_verdict="PASS",
        accuracy_reason="n=14042",
        measurements=(run(*[good] * 6),),
        slo_ok=good > 90,
    )
    found = decided(reference(), emulated)
    assert found.outcome is DecisionOutcome.INCONCLUSIVE
    assert "kernel=emulated" in answer(found, "valid").sentence
    assert answer(found, "accurate").passed is True  # its accuracy counts
    assert found.compared == ()
    failing = replace(emulated, accuracy_verdict="FAIL")
    assert decided(reference(), failing).outcome is DecisionOutcome.REJECT


def test_of_level_winners_the_one_with_the_fewest_overrides_is_taken() -> None:
    many = challenger(name="many", overrides=5, measurements=(run(*[96] * 6),))
    few = challenger(name="few", overrides=1, measurements=(run(*[95] * 6),))
    found = decided(reference(), many, few)
    assert found.winner == "few"
    assert "few (1 overrides) is chosen before many" in answer(found, "choice").sentence


def test_a_winner_that_is_clearly_better_is_taken_despite_more_overrides() -> None:
    many = challenger(name="many", overrides=5, measurements=(run(*[99] * 6),))
    few = challenger(name="few", overrides=1, measurements=(run(*[90] * 6),))
    assert decided(reference(), many, few).winner == "many"  # 99 / 90 = + 10 %


def test_an_unknown_arm_beside_a_winner_does_not_stop_the_promotion() -> None:
    unknown = challenger(name="other", flags=(INVALID,))
    found = decided(reference(), challenger(), unknown)
    assert found.winner == "tuned"
    assert "a believable measurement of other" in found.would_change


@pytest.mark.parametrize(
    "arms",
    [
        (challenger(),),
        (reference(), reference(name="other")),
        (reference(), challenger(), challenger()),
    ],
)
def test_evidence_of_another_shape_is_refused(arms: tuple[ArmEvidence, ...]) -> None:
    with pytest.raises(PermanentError) as raised:
        decided(*arms)
    assert raised.value.code == "EVIDENCE_SHAPE"


def test_a_decision_comes_back_equal_through_json() -> None:
    found = decided(reference(), challenger())
    assert from_text(Decision, to_text(found)) == found


def arms_of(rng: random.Random) -> list[ArmEvidence]:
    arms = [reference(flags=rng.choice([(), (INVALID,), (ERRORS,)]))]
    for name in ("b", "c", "d")[: rng.randint(1, 3)]:
        level = rng.choice([50, 70, 72, 90, 95])
        checkpoint = rng.choice(
            [BF16, AWQ, replace(AWQ, serve_as="dequantized"), replace(AWQ, synthetic=True)]
        )
        arms.append(
            challenger(
                name=name,
                checkpoint=checkpoint,
                measurements=rng.choice([(run(*[level] * 6),), (run(*[level] * 3),), ()]),
                flags=rng.choice([(), (), (INVALID,), (ERRORS,)]),
                accuracy_verdict=rng.choice(["PASS", "FAIL", "INCONCLUSIVE", None]),
                infeasible=rng.choice([None, None, None, "does not fit"]),
                slo_ok=rng.choice([True, True, False, None]),
                overrides=rng.randint(0, 3),
            )
        )
    return arms


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([0.01, None, 0.5]))
def test_nothing_is_promoted_with_a_gate_that_is_not_passed(
    rng: random.Random, floor: float | None
) -> None:
    arms = arms_of(rng)
    gates = replace(GATES, noise_floor_frac=floor)
    found = decided(*arms, gates=gates)
    assert (found.winner is not None) == (found.outcome is DecisionOutcome.PROMOTE)
    if found.winner is not None:
        of_winner = [r for r in found.reasons if r.arm == found.winner]
        assert {"valid", "accurate", "slo", "better"} <= {r.gate for r in of_winner}
        assert all(r.passed is True for r in of_winner)
        assert floor == 0.01
        winner = next(arm for arm in arms if arm.name == found.winner)
        assert (winner.checkpoint.kernel, winner.checkpoint.synthetic) == ("native", False)
        assert winner.flags == ()
    rng.shuffle(arms)
    assert decided(*arms, gates=gates) == found
