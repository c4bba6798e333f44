"""A whole study without Prefect, MLflow or an engine."""

import contextlib
from collections import Counter

import pytest

from tasks.domain.codec import from_text, to_text
from tasks.domain.decision import DecisionOutcome
from tasks.domain.steps import (
    Deploy,
    Evaluate,
    Failed,
    Measure,
    ProbeText,
    Step,
    Stop,
    StoredOutcome,
    TrialStatus,
)
from tasks.domain.study import StudyResult, drive, run_study
from tests.fakes.study_script import (
    Script,
    died,
    infeasible,
    study_request,
    tuned_arm,
    two_arms,
)

REFERENCE = two_arms()[1]


def run(script: Script, *arms, recall=None, ruled_out=None, **plan) -> StudyResult:
    request = study_request(*arms, **plan)
    return drive(run_study(request, {} if recall is None else recall, ruled_out), script.carry_out)


def count(script: Script, kind: type) -> int:
    return sum(isinstance(step, kind) for step in script.steps)


def test_the_reference_runs_first_and_every_engine_is_stopped() -> None:
    script = Script()
    result = run(script)
    assert [trial.arm.name for trial in result.trials] == ["reference", "awq"]
    assert [trial.status for trial in result.trials] == [TrialStatus.COMPLETE] * 2
    assert count(script, Deploy) == count(script, Stop) == 2
    assert script.engines == 0


def test_every_arm_meets_every_load_point_and_its_repeat() -> None:
    script = Script()
    run(script)
    points = Counter((s.arm, s.point.name) for s in script.steps if isinstance(s, Measure))
    assert points == {(arm, name): 1 for arm in ("reference", "awq")
                      for name in ("x1.00", "x1.00_r1", "x0.50")}  # fmt: skip


def test_better_values_on_the_same_checkpoint_are_promoted() -> None:
    script = Script(good={"reference": (120, 60), "tuned": (180, 0)})
    result = run(script, REFERENCE, tuned_arm(max_num_seqs=64))
    assert result.decision.outcome is DecisionOutcome.PROMOTE
    assert result.decision.winner == "tuned"


def test_an_emulated_kernel_promotes_nothing_however_fast_it_looks() -> None:
    script = Script(good={"reference": (120, 60), "awq": (180, 0)}, serve_as="dequantized")
    result = run(script)
    assert result.decision.outcome is not DecisionOutcome.PROMOTE
    assert any("emulated" in reason.sentence for reason in result.decision.reasons)


def test_100_equal_items_do_not_pass_a_one_point_margin_and_say_how_many_would() -> None:
    script = Script(good={"reference": (120, 60), "awq": (180, 0)})
    decision = run(script).decision
    assert decision.outcome is DecisionOutcome.INCONCLUSIVE
    accurate = next(reason for reason in decision.reasons if reason.gate == "accurate")
    assert accurate.passed is None
    # one-sided 95 %: no discordant item among n bounds the drop at 1 - 0.05^(1/n); 1 % needs 299
    assert "299" in " ".join((accurate.sentence, *decision.would_change))


def test_a_known_study_starts_no_engine_and_decides_the_same() -> None:
    first = Script(good={"reference": (120, 60)})
    before = run(first, REFERENCE, tuned_arm(max_num_seqs=64))
    second = Script(good={"reference": (1, 179)})
    after = run(second, REFERENCE, tuned_arm(max_num_seqs=64), recall=first.stored)
    assert count(second, Deploy) == count(second, Measure) == 0
    assert after.decision == before.decision


@pytest.mark.parametrize("cut", [0, 1, 3, 5, 8, 12])
def test_a_study_that_is_killed_at_any_step_goes_on_where_it_stopped(cut: int) -> None:
    class KilledError(Exception):
        pass

    def kill(step: Step) -> None:
        if len(script.steps) == cut:
            raise KilledError

    script = Script(before=kill)
    with contextlib.suppress(KilledError):
        run(script)
    measured = {s.key for s in script.steps if isinstance(s, Measure) and s.key in script.stored}
    resumed = Script()
    result = run(resumed, recall=script.stored)
    again = {s.key for s in resumed.steps if isinstance(s, Measure)}
    assert not measured & again
    assert [trial.status for trial in result.trials] == [TrialStatus.COMPLETE] * 2


def test_a_transient_death_is_answered_once_with_a_fresh_engine() -> None:
    script = Script(fails={("reference", Measure): [died()]})
    result = run(script)
    assert result.trials[0].status is TrialStatus.COMPLETE
    assert count(script, Deploy) == 3  # two for the reference, one for awq


def test_a_second_death_fails_the_trial_and_stops_a_study_of_two() -> None:
    script = Script(fails={("reference", Measure): [died(), died()]})
    result = run(script)
    assert [trial.status for trial in result.trials] == [TrialStatus.FAILED]
    assert result.decision.outcome is DecisionOutcome.INCONCLUSIVE
    assert script.engines == 0


@pytest.mark.parametrize(
    ("codes", "tries"),
    [
        (("CLIENT_SEND_LATE",), 2),
        (("CLIENT_SEND_LATE", "CLIENT_RECEIVE_LATE"), 2),
        (("CLIENT_SEND_LATE", "WARM_PREFIX_CACHE"), 1),
        (("COUNTER_RESET",), 1),
    ],
)
def test_a_late_client_alone_is_worth_one_more_measurement(
    codes: tuple[str, ...], tries: int
) -> None:
    script = Script(spoilt={"x1.00": [codes] * tries})
    trials = run(script, REFERENCE, tuned_arm()).trials
    points = Counter((s.arm, s.point.name) for s in script.steps if isinstance(s, Measure))
    assert (points["reference", "x1.00"], points["tuned", "x1.00"]) == (tries, 1)
    assert [t.status for t in trials] == [TrialStatus.INVALID, TrialStatus.COMPLETE]


def test_a_second_measurement_in_time_takes_the_first_ones_place() -> None:
    script = Script(spoilt={"x1.00": [("CLIENT_RECEIVE_LATE",)]})
    trial = run(script).trials[0]
    assert trial.status is TrialStatus.COMPLETE
    assert [m.measurement.load_point.name for m in trial.measurements].count("x1.00") == 1


def test_an_infeasible_arm_is_not_tried_again_and_the_study_goes_on() -> None:
    script = Script(fails={("awq", Deploy): [infeasible()]})
    result = run(script)
    assert [t.status for t in result.trials] == [TrialStatus.COMPLETE, TrialStatus.INFEASIBLE]
    again = Script()
    run(again, recall=script.stored)
    assert count(again, Deploy) == 0


def test_an_arm_that_the_plan_rules_out_starts_no_engine() -> None:
    script = Script()
    result = run(script, ruled_out={"awq": "needs 64 GiB"})
    assert result.trials[1].failure == Failed(
        code="INFEASIBLE_BY_PLAN", message="needs 64 GiB", status=TrialStatus.INFEASIBLE
    )
    assert {step.arm for step in script.steps} == {"reference"}


def test_degenerate_text_ends_the_trial_before_any_load() -> None:
    script = Script(degenerate_frac=0.6)
    result = run(script)
    assert result.trials[0].failure is not None
    assert result.trials[0].failure.code == "DEGENERATE_OUTPUT"
    assert count(script, Measure) == 0
    assert count(script, ProbeText) >= 1


def test_accuracy_is_measured_once_a_checkpoint_whatever_the_values() -> None:
    script = Script()

    class Live(dict):
        def get(self, key, default=None):
            return script.stored.get(key, default)

    run(script, REFERENCE, tuned_arm(max_num_seqs=64), recall=Live())
    assert count(script, Evaluate) == 1


def test_a_new_slo_is_judged_on_measurements_of_its_own_key() -> None:
    from dataclasses import replace

    script = Script()
    request = study_request()
    drive(run_study(request, {}), script.carry_out)
    stricter = replace(request, slo=replace(request.slo, ttft_s=0.05))
    again = Script()
    drive(run_study(stricter, script.stored), again.carry_out)
    assert count(again, Measure) == 6


def test_the_curve_is_measured_adaptively_and_stays_within_its_budget() -> None:
    script = Script()
    result = run(script, curve_points=3)
    closed = [
        s.point.concurrency
        for s in script.steps
        if isinstance(s, Measure) and s.arm == "awq" and s.point.concurrency is not None
    ]
    assert closed == [1, 2, 4]
    assert result.trials[0].curve is not None
    assert result.trials[0].curve.quantile == 0.99


def test_every_outcome_survives_the_disk() -> None:
    script = Script()
    run(script)
    assert script.stored
    for outcome in script.stored.values():
        stored = StoredOutcome(step="x", outcome=outcome)
        assert from_text(StoredOutcome, to_text(stored)) == stored


def test_an_interrupt_passes_through_the_state_machine() -> None:
    def interrupt(step: Step) -> None:
        if isinstance(step, Measure):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Script(before=interrupt))
