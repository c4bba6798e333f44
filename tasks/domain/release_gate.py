"""The release question: may this parameter set go out? Go, no-go, or could not tell.

Pure: yields the steps that measure the set and judges what comes back.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tasks.domain.accuracy import AccuracyReport, AccuracyVerdict, compare_accuracy
from tasks.domain.arm_run import ArmRun, Stepping
from tasks.domain.nightly import invalid_sentence
from tasks.domain.slo_holding import (
    Holding,
    SloHolding,
    broken_despite_lateness,
    slo_holding,
)
from tasks.domain.steps import Outcome, Step, TrialStatus
from tasks.domain.study_request import StudyRequest
from tasks.domain.trial import Trial
from tasks.domain.validity import client_was_late

REFERENCE = "reference"


class Gate(IntEnum):
    """The gate's answer; its number is the command's exit code."""

    GO = 0
    NO_GO = 1
    COULD_NOT_TELL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReason:
    """One gate with its answer and the sentence that explains it."""

    gate: str
    answer: Gate
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """The answer of all gates together: any no-go decides, then any doubt."""

    parameter_set: str
    answer: Gate
    reasons: tuple[GateReason, ...]
    holding: SloHolding | None
    trial: Trial


def gate_release(
    request: StudyRequest,
    *,
    occasion: str,
    parameter_set: str,
    preflight: tuple[GateReason, ...],
    recall: Mapping[str, Outcome],
    reference_accuracy: AccuracyReport | None = None,
) -> Generator[Step, Outcome, ReleaseVerdict]:
    """Yield the steps that measure the set's values at the regime's load; return the verdict.

    ``preflight`` holds the gates that need no engine (plan, checklist, accuracy on record); a
    no-go among them is answered without starting one. A quantized set is evaluated and compared
    with ``reference_accuracy``, the report on record of the reference checkpoint.
    """
    run = ArmRun(request=request, arm=request.arms[0], recall=recall, occasion=occasion)
    if not any(reason.answer is Gate.NO_GO for reason in preflight):
        yield from _measure(run)
    trial = yield from run.finish()
    return release_verdict(
        request,
        trial,
        parameter_set=parameter_set,
        preflight=preflight,
        reference_accuracy=reference_accuracy,
    )


def _measure(run: ArmRun) -> Stepping:
    if not ((yield from run.prepare()) and (yield from run.probe_text())):
        return False
    for point in run.request.load.open_points():
        if not (yield from run.measure(point)):
            return False
    if run.arm.method != REFERENCE:
        return (yield from run.evaluate())
    return True


def release_verdict(
    request: StudyRequest,
    trial: Trial,
    *,
    parameter_set: str,
    preflight: tuple[GateReason, ...],
    reference_accuracy: AccuracyReport | None = None,
) -> ReleaseVerdict:
    """Judge a release: the engine gate and the SLO gate after those of the preflight.

    GO needs the SLO to be shown (lower bound at or over the target), not only not broken.
    """
    reasons = list(preflight)
    holding: SloHolding | None = None
    if not any(reason.answer is Gate.NO_GO for reason in preflight):
        reasons.append(_engine_reason(trial))
        reasons.append(_accuracy_reason(request, trial, reference_accuracy))
        if trial.status is TrialStatus.COMPLETE:
            holding = slo_holding(trial.at_regime_rate, request.slo)
            answers = {
                Holding.HOLDS: Gate.GO,
                Holding.BROKEN: Gate.NO_GO,
                Holding.UNPROVEN: Gate.COULD_NOT_TELL,
            }
            reasons.append(
                GateReason(gate="slo", answer=answers[holding.holding], sentence=holding.sentence)
            )
        reasons += _broken_all_the_same(request, trial)
    answers_given = {reason.answer for reason in reasons}
    answer = next(a for a in (Gate.NO_GO, Gate.COULD_NOT_TELL, Gate.GO) if a in answers_given)
    return ReleaseVerdict(
        parameter_set=parameter_set,
        answer=answer,
        reasons=tuple(reasons),
        holding=holding,
        trial=trial,
    )


def _broken_all_the_same(request: StudyRequest, trial: Trial) -> list[GateReason]:
    """Return the no-go that measurements show whose only fault is a late client."""
    late = [m for m in trial.at_regime_rate if client_was_late(m.flags)]
    found = [broken_despite_lateness(m, request.slo) for m in late]
    return [
        GateReason(gate="slo", answer=Gate.NO_GO, sentence=sentence)
        for sentence in found
        if sentence is not None
    ]


def _accuracy_reason(
    request: StudyRequest, trial: Trial, reference: AccuracyReport | None
) -> GateReason:
    """Judge the set's checkpoint; only PASS opens this gate for a quantized one."""
    if trial.arm.method == REFERENCE:
        sentence = "the set serves the reference checkpoint itself"
        return GateReason(gate="accuracy", answer=Gate.GO, sentence=sentence)
    if request.evaluation is None or trial.accuracy is None or reference is None:
        sentence = (
            f"the accuracy of the {trial.arm.method} checkpoint against the reference is not on "
            "record; run the study with an evaluation first"
        )
        return GateReason(gate="accuracy", answer=Gate.COULD_NOT_TELL, sentence=sentence)
    compared = compare_accuracy(
        reference, trial.accuracy, margin_frac=request.evaluation.margin_frac
    )
    answers = {AccuracyVerdict.PASS: Gate.GO, AccuracyVerdict.FAIL: Gate.NO_GO}
    answer = answers.get(compared.verdict, Gate.COULD_NOT_TELL)
    return GateReason(gate="accuracy", answer=answer, sentence=compared.reason)


def _engine_reason(trial: Trial) -> GateReason:
    if trial.status is TrialStatus.COMPLETE:
        return GateReason(gate="engine", answer=Gate.GO, sentence="the engine served the load")
    if trial.failure is None:
        return GateReason(
            gate="engine", answer=Gate.COULD_NOT_TELL, sentence=invalid_sentence(trial)
        )
    cannot = trial.status is TrialStatus.INFEASIBLE
    return GateReason(
        gate="engine",
        answer=Gate.NO_GO if cannot else Gate.COULD_NOT_TELL,
        sentence=f"{trial.failure.code}: {trial.failure.message}",
    )
