"""The whole loop of a study as a pure state machine.

``run_study`` yields the next Step and is sent its Outcome; Prefect and the offline driver both
carry the steps out. It knows no file, clock, engine or tracker.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tasks.domain.arm_run import ArmRun, Stepping
from tasks.domain.decision import Decision
from tasks.domain.steps import Failed, Outcome, Step, TrialStatus
from tasks.domain.study_decision import study_decision
from tasks.domain.study_request import Arm, StudyRequest
from tasks.domain.trial import Trial

MAX_FAILED_FRAC = 0.2

ResultT = TypeVar("ResultT")
Running = Generator[Step, Outcome, ResultT]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """The trials in the order in which they ran, and what they decide."""

    study_id: str
    trials: tuple[Trial, ...]
    decision: Decision


def drive(running: Running[ResultT], carry_out: Callable[[Step], Outcome]) -> ResultT:
    """Carry out every step that the state machine yields and return its result.

    What ``carry_out`` raises is raised here; the caller stops what still runs.
    """
    try:
        step = next(running)
        while True:
            step = running.send(carry_out(step))
    except StopIteration as finished:
        result: ResultT = finished.value
        return result


def run_study(
    request: StudyRequest,
    recall: Mapping[str, Outcome],
    infeasible: Mapping[str, str] | None = None,
) -> Running[StudyResult]:
    """Yield the steps of the study, arm by arm with the reference first, and return its result.

    ``recall`` maps step keys to outcomes that are known from an earlier run of the same study:
    those steps are not yielded, and an arm whose steps are all known starts no engine.
    ``infeasible`` maps names of arms that the plan rules out to the reason: no engine is started
    for them. The study stops early when more than a fifth of its trials FAILED.
    """
    trials: list[Trial] = []
    for arm in sorted(request.arms, key=lambda a: not a.is_reference):
        reason = (infeasible or {}).get(arm.name)
        if reason is not None:
            trials.append(_ruled_out(arm, reason))
            continue
        trials.append((yield from _trial(ArmRun(request=request, arm=arm, recall=recall))))
        failed = sum(trial.status is TrialStatus.FAILED for trial in trials)
        if failed > MAX_FAILED_FRAC * len(request.arms):
            break
    return StudyResult(
        study_id=request.study_id,
        trials=tuple(trials),
        decision=study_decision(request, tuple(trials)),
    )


def _trial(run: ArmRun) -> Running[Trial]:
    yield from _observe(run)
    return (yield from run.finish())


def _observe(run: ArmRun) -> Stepping:
    """Go through the parts in order; the first that fails ends the trial."""
    if not ((yield from run.prepare()) and (yield from run.probe_text())):
        return False
    for point in run.request.load.open_points():
        if not (yield from run.measure(point)):
            return False
    return (
        (yield from run.measure_curve())
        and (yield from run.evaluate())
        and (yield from run.profile())
    )


def _ruled_out(arm: Arm, reason: str) -> Trial:
    failure = Failed(code="INFEASIBLE_BY_PLAN", message=reason, status=TrialStatus.INFEASIBLE)
    return Trial(arm=arm, status=TrialStatus.INFEASIBLE, failure=failure)
