"""Nights and release gates without an engine: the scripted outcomes decide."""

import numpy as np
import pytest

from tasks.domain.drift import DriftReport, drift_report
from tasks.domain.engine_session import recallable
from tasks.domain.nightly import NightOutcome, revalidate
from tasks.domain.parameters import ParameterValues
from tasks.domain.release_gate import Gate, GateReason, gate_release
from tasks.domain.steps import Deploy, Failed, Measure, TrialStatus
from tasks.domain.study import drive
from tasks.domain.study_request import Arm
from tasks.domain.trace import Trace, TraceNotes
from tests.fakes.study_script import Script, accuracy, died, infeasible, study_request

SET = Arm(name="peak", method="reference", values=ParameterValues(), is_reference=True)
PASSED = (GateReason(gate="plan", answer=Gate.GO, sentence="fits"),)
CLOSED = (GateReason(gate="plan", answer=Gate.NO_GO, sentence="needs 64 GiB"),)


def trace(prompt_tokens: int, seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(0.5, 2000))
    return Trace(
        arrival_s=arrival - arrival[0],
        prompt_tokens=rng.poisson(prompt_tokens, 2000).astype(np.int64) + 1,
        output_tokens=rng.poisson(20, 2000).astype(np.int64) + 1,
        source="made",
        sha256=f"{prompt_tokens}-{seed}",
        notes=TraceNotes(format="made", rows=2000),
    )


UNCHANGED = drift_report(trace(100, 1), trace(100, 2), seed=0)
DRIFTED = drift_report(trace(100, 1), trace(200, 2), seed=0)


def night(script: Script, drift: DriftReport = UNCHANGED):
    request = study_request(SET, repeats=1)
    return drive(
        revalidate(request, night="n", parameter_set="peak", drift=drift, recall={}),
        script.carry_out,
    )


def release(script: Script, preflight=PASSED):
    request = study_request(SET, repeats=1)
    return drive(
        gate_release(request, occasion="o", parameter_set="peak", preflight=preflight, recall={}),
        script.carry_out,
    )


def test_unchanged_traffic_inside_the_slo_keeps_the_set() -> None:
    verdict = night(Script())
    assert verdict.outcome is NightOutcome.KEEP
    assert "does not differ" in verdict.reasons[0]


def test_drifted_traffic_asks_for_a_retune_and_names_what_drifted() -> None:
    verdict = night(Script(), DRIFTED)
    assert verdict.outcome is NightOutcome.RETUNE
    assert any("prompt" in reason or "input" in reason for reason in verdict.reasons)


def test_a_broken_slo_asks_for_a_retune_without_drift() -> None:
    assert night(Script(good={"peak": (60, 120)})).outcome is NightOutcome.RETUNE


def test_a_miss_that_is_not_shown_is_inconclusive() -> None:
    # 26 of 30 is 86.7 %, under the target of 90 %, but its upper bound lies above it
    assert night(Script(good={"peak": (26, 4)})).outcome is NightOutcome.INCONCLUSIVE


def test_a_set_that_the_engine_cannot_run_is_not_kept() -> None:
    verdict = night(Script(fails={("peak", Deploy): [infeasible()]}))
    assert verdict.outcome is NightOutcome.RETUNE
    assert any("KV_CACHE_TOO_SMALL" in reason for reason in verdict.reasons)


def test_a_dead_engine_is_inconclusive_never_keep() -> None:
    script = Script(fails={("peak", Measure): [died(), died()]})
    assert night(script).outcome is NightOutcome.INCONCLUSIVE
    assert script.engines == 0


def test_the_night_replays_the_fresh_traffic() -> None:
    script = Script()
    night(script)
    assert {s.traffic for s in script.steps if isinstance(s, Measure)} == {"fresh"}


@pytest.mark.parametrize(
    ("good", "answer"),
    [((180, 0), Gate.GO), ((60, 120), Gate.NO_GO), ((20, 0), Gate.COULD_NOT_TELL)],
)
def test_the_gate_answers_by_what_is_shown(good: tuple[int, int], answer: Gate) -> None:
    verdict = release(Script(good={"peak": good}))
    assert verdict.answer is answer
    assert int(verdict.answer) == int(answer)


@pytest.mark.parametrize(
    ("good", "answer"), [((20, 160), Gate.NO_GO), ((160, 20), Gate.COULD_NOT_TELL)]
)
def test_a_late_client_hides_no_limit_that_is_broken_by_far(
    good: tuple[int, int], answer: Gate
) -> None:
    late = ("CLIENT_SEND_LATE",)
    verdict = release(Script(good={"peak": good}, spoilt={"x1.00": [late, late]}))
    assert verdict.answer is answer
    if answer is Gate.NO_GO:
        assert any("that the client was late" in reason.sentence for reason in verdict.reasons)


def test_a_failed_preflight_is_a_no_go_without_an_engine() -> None:
    script = Script()
    assert release(script, CLOSED).answer is Gate.NO_GO
    assert not script.steps


def test_degenerate_text_is_a_no_go() -> None:
    assert release(Script(degenerate_frac=0.5)).answer is Gate.NO_GO


def test_an_engine_that_dies_twice_cannot_tell() -> None:
    script = Script(fails={("peak", Deploy): [died(), died()]})
    assert release(script).answer is Gate.COULD_NOT_TELL


def test_only_infeasible_failures_are_remembered() -> None:
    assert recallable(infeasible())
    assert not recallable(died())
    assert not recallable(Failed(code="X", message="x", status=TrialStatus.INVALID))


def quantized(right: int, *, reference_right: int | None = 80, n: int = 100):
    arm = Arm(name="peak", method="awq", values=ParameterValues(), is_reference=True)
    request = study_request(arm, repeats=1)
    on_record = None
    if reference_right is not None:
        on_record = accuracy("sha-reference", right=reference_right, n=n).report
    gate = gate_release(
        request,
        occasion="o",
        parameter_set="peak",
        preflight=PASSED,
        recall={},
        reference_accuracy=on_record,
    )
    return drive(gate, Script(right={"peak": right}).carry_out)


def test_a_quantized_set_without_the_references_accuracy_on_record_cannot_tell() -> None:
    assert quantized(80, reference_right=None).answer is Gate.COULD_NOT_TELL


def test_100_equal_items_cannot_tell_whether_a_quantized_set_may_go() -> None:
    verdict = quantized(80)
    assert verdict.answer is Gate.COULD_NOT_TELL
    assert any(r.gate == "accuracy" and "299" in r.sentence for r in verdict.reasons)


def test_a_shown_loss_of_accuracy_is_a_no_go_however_fast_the_set_is() -> None:
    assert quantized(40).answer is Gate.NO_GO
