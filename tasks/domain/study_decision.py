"""Gathers a study's trials into evidence and decides."""

from tasks.domain.accuracy import AccuracyComparison, compare_accuracy
from tasks.domain.decision import ArmEvidence, Decision, Gates, StudyEvidence, decide
from tasks.domain.endpoint import Checkpoint
from tasks.domain.errors import EvaluationError
from tasks.domain.noise_floor import noise_floor, repeat_pairs
from tasks.domain.steps import TrialStatus
from tasks.domain.study_request import Arm, StudyRequest
from tasks.domain.trial import Trial
from tasks.domain.validity import Flag

CHANGES_NUMERICS = frozenset({"dtype", "kv_cache_dtype", "quantization"})


def study_decision(request: StudyRequest, trials: tuple[Trial, ...]) -> Decision:
    """Return the decision of a study; the A/A noise floor comes from its own repeats.

    An arm that was never run (the study stopped early) counts as an arm without evidence.
    """
    by_name = {trial.arm.name: trial for trial in trials}
    pairs = [pair for trial in trials for pair in repeat_pairs(trial.at_regime_rate)]
    gates = Gates(
        min_gain_frac=request.min_gain_frac,
        noise_floor_frac=noise_floor(pairs),
        accuracy_margin_frac=request.evaluation.margin_frac if request.evaluation else 0.01,
        min_window_s=request.load.window_s,
    )
    reference = by_name.get(request.reference.name)
    pruned = {trial.arm.name for trial in trials if trial.status is TrialStatus.PRUNED}
    arms = tuple(
        _evidence(arm, by_name.get(arm.name), reference, request)
        for arm in request.arms
        if arm.name not in pruned
    )
    evidence = StudyEvidence(regime=request.regime.value, arms=arms, seed=request.seed)
    return decide(evidence, gates=gates)


def accuracy_against(
    trial: Trial, reference: Trial | None, request: StudyRequest
) -> AccuracyComparison | str | None:
    """Return the paired comparison of a trial's accuracy, or why there is none, or None.

    None where the study evaluates nothing or one side was not evaluated.
    """
    if request.evaluation is None or reference is None:
        return None
    if trial.accuracy is None or reference.accuracy is None:
        return None
    try:
        return compare_accuracy(
            reference.accuracy,
            trial.accuracy,
            margin_frac=request.evaluation.margin_frac,
            confidence=request.evaluation.confidence,
        )
    except EvaluationError as error:
        return f"{error.code}: {error}"


def _evidence(
    arm: Arm, trial: Trial | None, reference: Trial | None, request: StudyRequest
) -> ArmEvidence:
    if trial is None:
        return ArmEvidence(
            name=arm.name,
            checkpoint=_unprepared(arm, request),
            is_reference=arm.is_reference,
            flags=(Flag(code="NOT_RUN", sentence="the study stopped before it", invalid=True),),
        )
    measured = trial.at_regime_rate
    accuracy = None if arm.is_reference else accuracy_against(trial, reference, request)
    compared = accuracy if isinstance(accuracy, AccuracyComparison) else None
    infeasible, flags = _failure(trial)
    return ArmEvidence(
        name=arm.name,
        checkpoint=trial.checkpoint or _unprepared(arm, request),
        is_reference=arm.is_reference,
        measurements=measured,
        accuracy_verdict=None if compared is None else str(compared.verdict.value),
        accuracy_reason=accuracy.reason if isinstance(accuracy, AccuracyComparison) else accuracy,
        accuracy_items_needed=None if compared is None else compared.items_that_would_decide,
        flags=flags,
        infeasible=infeasible,
        slo_ok=all(m.slo_ok for m in measured) if measured else None,
        overrides=len(arm.values.items),
        changes_numerics=any(name in CHANGES_NUMERICS for name, _ in arm.values.items),
    )


def _failure(trial: Trial) -> tuple[str | None, tuple[Flag, ...]]:
    """Return why the arm cannot run, and the flag of a trial that failed otherwise."""
    failure = trial.failure
    if failure is None:
        return None, ()
    sentence = f"{failure.code}: {failure.message}"
    if trial.status is TrialStatus.INFEASIBLE:
        return sentence, ()
    return None, (Flag(code=failure.code, sentence=sentence, invalid=True),)


def _unprepared(arm: Arm, request: StudyRequest) -> Checkpoint:
    return Checkpoint(
        model=request.model,
        method=arm.method,
        sha256=f"not prepared: {arm.method}",
        serve_as="not prepared",
        dtype="auto",
        synthetic=request.synthetic,
    )
