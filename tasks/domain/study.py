"""The whole loop of a study as a pure state machine.

``run_study`` yields the next Step and is sent its Outcome; Prefect and the offline driver both
carry the steps out. It knows no file, clock, engine or tracker.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tasks.domain.arm_run import ArmRun, Stepping
from tasks.domain.arm_search import ArmSearch, Searcher
from tasks.domain.cells import cells_not_best
from tasks.domain.decision import Decision
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Failed, Outcome, Step, TrialStatus
from tasks.domain.study_decision import study_decision
from tasks.domain.study_request import Arm, StudyRequest
from tasks.domain.study_so_far import StudySoFar
from tasks.domain.trial import Trial

MAX_FAILED_FRAC = 0.2

ResultT = TypeVar("ResultT")
Running = Generator[Step, Outcome, ResultT]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """The trials in the order in which they ran, and what they decide.

    searches: one report a searched arm.
    """

    study_id: str
    trials: tuple[Trial, ...]
    decision: Decision
    searches: tuple[SearchReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The arms with the values that their searches found, the reference first.

    ruled_out: why an arm is not measured, by its name.
    """

    arms: tuple[Arm, ...]
    ruled_out: Mapping[str, Failed]
    searches: tuple[SearchReport, ...]


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
    searchers: Mapping[str, Searcher] | None = None,
    so_far: StudySoFar | None = None,
) -> Running[StudyResult]:
    """Yield the steps of the study, the reference first, and return its result.

    First the live knobs of the searched arms are found (``searchers`` by the arm's name), then
    every arm is measured on a fresh engine, in as many rounds as the load asks for, each in the
    opposite order of the one before.
    ``recall`` maps step keys to outcomes that are known from an earlier run of the same study:
    those steps are not yielded, and an arm whose steps are all known starts no engine.
    ``infeasible`` maps names of arms that the plan rules out to the reason: no engine is started
    for them. The study stops early when more than a fifth of its trials FAILED.
    ``so_far`` is told what begins, so that it knows at any time what has been found.
    """
    so_far = so_far or StudySoFar()
    found = yield from run_searches(request, recall, infeasible, searchers, so_far)
    trials = yield from _trials(request, found.arms, found.ruled_out, recall, so_far)
    return StudyResult(
        study_id=request.study_id,
        trials=trials,
        decision=study_decision(replace(request, arms=found.arms), trials),
        searches=found.searches,
    )


def run_searches(
    request: StudyRequest,
    recall: Mapping[str, Outcome],
    infeasible: Mapping[str, str] | None = None,
    searchers: Mapping[str, Searcher] | None = None,
    so_far: StudySoFar | None = None,
) -> Running[Searched]:
    """Yield the steps of a study's searches alone; ``run_study`` begins with the same."""
    so_far = so_far or StudySoFar()
    arms = sorted(request.arms, key=lambda a: not a.is_reference)
    ruled_out = {
        name: Failed(code="INFEASIBLE_BY_PLAN", message=text, status=TrialStatus.INFEASIBLE)
        for name, text in (infeasible or {}).items()
    }
    searches = []
    for i, arm in enumerate(arms):
        searcher = (searchers or {}).get(arm.name)
        if not arm.searched or request.search is None or searcher is None or arm.name in ruled_out:
            continue
        search = ArmSearch(
            request=request, arm=arm, plan=request.search, searcher=searcher, recall=recall
        )
        so_far.begun_search(search)
        report = yield from search.run()
        searches.append(report)
        arms[i] = replace(arm, values=report.found)
        unfit = report.failure or _nothing_found(arms, i, report)
        if unfit is not None:
            ruled_out[arm.name] = unfit
    sound = {search.arm: search for search in searches if search.failure is None}
    lost = cells_not_best(arms, sound, min_gain_frac=request.min_gain_frac)
    return Searched(arms=tuple(arms), ruled_out={**lost, **ruled_out}, searches=tuple(searches))


def _trials(
    request: StudyRequest,
    arms: tuple[Arm, ...],
    ruled_out: Mapping[str, Failed],
    recall: Mapping[str, Outcome],
    so_far: StudySoFar,
) -> Running[tuple[Trial, ...]]:
    """Measure the arms round by round; the first round also looks at everything but the rate."""
    limit = MAX_FAILED_FRAC * len(arms)
    runs: list[ArmRun] = []
    lost = 0
    for arm in arms:
        if arm.name in ruled_out:
            lost += ruled_out[arm.name].status is TrialStatus.FAILED
            continue
        run = ArmRun(request=request, arm=arm, recall=recall)
        runs.append(run)
        so_far.begun_run(run)
        yield from _observe(run)
        yield from run.pause()
        lost += run.notes.status() is TrialStatus.FAILED
        if lost > limit:
            break
    order = runs
    for number in range(1, request.load.rounds if lost <= limit else 1):
        order = order[::-1]
        for run in order:
            yield from _measure_again(run, number)
            yield from run.pause()
    finished = {run.arm.name: run.notes.finished() for run in runs}
    skipped = {
        arm.name: Trial(arm=arm, status=ruled_out[arm.name].status, failure=ruled_out[arm.name])
        for arm in arms
        if arm.name in ruled_out
    }
    known = {**finished, **skipped}
    return tuple(known[arm.name] for arm in arms if arm.name in known)


def _observe(run: ArmRun) -> Stepping:
    """Go through the parts in order; the first that fails ends the trial."""
    if not ((yield from run.prepare()) and (yield from run.probe_text())):
        return False
    for point in run.request.load.open_points():
        if not (yield from run.measure(point)):
            return False
    return (
        (yield from run.measure_sustainable())
        and (yield from run.measure_curve())
        and (yield from run.evaluate())
        and (yield from run.profile())
    )


def _measure_again(run: ArmRun, number: int) -> Stepping:
    """Measure the regime's rate of a later round, unless the arm has failed before."""
    if run.notes.failure is not None:
        return False
    for point in run.request.load.regime_points(number):
        if not (yield from run.measure(point)):
            return False
    return True


def _nothing_found(arms: list[Arm], index: int, report: SearchReport) -> Failed | None:
    """Return why a searched arm is not measured again: another arm has its very values."""
    arm = arms[index]
    twin = next(
        (a for a in arms if a is not arm and (a.method, a.values) == (arm.method, arm.values)), None
    )
    if report.improved or twin is None:
        return None
    return Failed(
        code="NOTHING_FOUND",
        message=f"no point of {len(report.probes)} beat the defaults by the minimum gain, and arm "
        f"{twin.name} measures those already ({report.stop_reason})",
        status=TrialStatus.PRUNED,
    )
