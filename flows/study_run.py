"""One study from its file to its verdict, whichever driver carries its steps out.

The order is fixed here: plan, measure, decide, keep on disk, publish, record. Recording comes
last and may fail: the evidence lies on disk and is recorded later.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from flows.engine_bench import EngineBench
from flows.engine_notes import with_engine_notes
from flows.keeping import Keeper, keep_found
from flows.materials import Materials
from flows.planning import infeasible_reasons, plan_materials
from flows.progress import Reporter
from flows.publishing import Publication, keep_product, publish_product
from flows.recall import KnownOutcomes, shared_outcomes
from flows.recording import Recording, record_runs_of
from flows.searching import searchers_of
from flows.step_log import StepLog
from flows.study_folder import StudyFolder
from flows.workshop import Workshop
from tasks.adapters.device_lock import device_lock
from tasks.domain.codec import to_text
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet, ParameterValues
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Outcome, Step
from tasks.domain.study import StudyResult, drive, run_searches, run_study
from tasks.domain.study_product import study_product
from tasks.domain.study_report import study_report
from tasks.domain.study_runs import study_runs
from tasks.domain.study_so_far import StudySoFar

ResultT = TypeVar("ResultT")
CarryOut = Callable[[Step], Outcome]
Wrap = Callable[[CarryOut], CarryOut]
LOCK_WAIT_S = 60.0
SET_LASTS_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """A finished study: its result, where its files are and where it was recorded."""

    result: StudyResult
    folder: Path
    report: Path
    publication: Publication
    recording: Recording


def no_wrap(carry_out: CarryOut) -> CarryOut:
    """Return ``carry_out`` as it is: the offline driver."""
    return carry_out


def conduct_study(
    materials: Materials,
    *,
    reporter: Reporter,
    wrap: Wrap = no_wrap,
    tags: tuple[tuple[str, str], ...] = (),
    offline: bool = False,
) -> StudyReport:
    """Run the study to its end and return its report.

    ``wrap`` turns the workshop's ``carry_out`` into the driver's: Prefect makes tasks of it.
    ``offline`` asks no tracking store; everything that it would be told is kept in the folder.

    Raises:
        DeviceLockedError: another run holds the device.
        StorageError: the evidence cannot be kept.
    """
    request = materials.request
    folder = StudyFolder.of(materials.place, request.name, request.study_id)
    plan = plan_materials(materials)
    folder.write("report/plan.json", to_text(plan, indent=1))
    folder.write("report/request.json", to_text(request, indent=1))
    known = KnownOutcomes(own=folder.outcomes, shared=shared_outcomes(materials.place))
    searchers = searchers_of(materials, folder)
    so_far = StudySoFar()
    running = run_study(request, known, infeasible_reasons(plan), searchers, so_far)
    keep = Keeper(request=request, folder=folder, so_far=so_far)
    result = with_engine(
        materials,
        folder,
        known,
        reporter,
        lambda carry_out: drive(running, keep.before_each(wrap(carry_out))),
    )
    result = replace(result, trials=with_engine_notes(result.trials, folder.path))
    return _finish(materials, folder, result, reporter=reporter, tags=tags, offline=offline)


def conduct_searches(materials: Materials, *, reporter: Reporter) -> tuple[SearchReport, ...]:
    """Run a study's searches alone and return their reports; the study goes on from there.

    Raises:
        ConfigError: the study has no searched arm.
        DeviceLockedError, StorageError: as a study does.
    """
    request = materials.request
    if request.search is None:
        raise ConfigError(
            f"study {request.name}: search: no arm is searched; give a search part and an arm "
            "with search: true"
        )
    folder = StudyFolder.of(materials.place, request.name, request.study_id)
    known = KnownOutcomes(own=folder.outcomes, shared=shared_outcomes(materials.place))
    so_far = StudySoFar()
    running = run_searches(
        request,
        known,
        infeasible_reasons(plan_materials(materials)),
        searchers_of(materials, folder),
        so_far,
    )
    keep = Keeper(request=request, folder=folder, so_far=so_far)
    found = with_engine(
        materials,
        folder,
        known,
        reporter,
        lambda carry_out: drive(running, keep.before_each(carry_out)),
    )
    keep_found(folder, found.searches, ())
    return found.searches


def with_engine(
    materials: Materials,
    folder: StudyFolder,
    known: KnownOutcomes,
    reporter: Reporter,
    run: Callable[[CarryOut], ResultT],
) -> ResultT:
    """Hold the device's lock and a workshop while ``run`` uses its ``carry_out``.

    Whatever happens inside, the engine is stopped and the lock released.
    """
    request = materials.request
    bench = EngineBench(
        materials=materials, folder=folder.path, reporter=reporter, attached=materials.attached
    )
    lock = device_lock(
        materials.place.locks,
        materials.host.lock_name,
        wait_s=LOCK_WAIT_S,
        purpose=f"{request.name} {request.study_id}",
    )
    workshop = Workshop(
        request=request,
        store=known,
        reporter=reporter,
        bench=bench,
        log=StepLog(folder=folder.path),
    )
    with lock, workshop:
        return run(workshop.carry_out)


def _finish(
    materials: Materials,
    folder: StudyFolder,
    result: StudyResult,
    *,
    reporter: Reporter,
    tags: tuple[tuple[str, str], ...],
    offline: bool,
) -> StudyReport:
    """Keep report and decision on disk, record, then publish with the run ids that earned it."""
    request = materials.request
    report = folder.write("report/report.md", study_report(request, result))
    folder.write("report/decision.json", to_text(result.decision, indent=1))
    keep_found(folder, result.searches, result.trials)
    reporter.scope(request.name)
    if not offline:
        reporter.line("record: copying the evidence to MLflow")
    recording = record_runs_of(
        study_runs(request, result, tags=tags),
        materials=materials,
        folder=folder,
        offline=offline,
    )
    publication = publish_product(
        keep_product(folder, _product(materials, result)),
        folder=folder,
        place=materials.place,
        recording=recording,
    )
    return StudyReport(
        result=result,
        folder=folder.path,
        report=report,
        publication=publication,
        recording=recording,
    )


def _product(materials: Materials, result: StudyResult) -> ParameterSet:
    today = dt.datetime.now(dt.UTC).date()
    return study_product(
        materials.request,
        result,
        measured_on=today.isoformat(),
        expires_on=(today + dt.timedelta(days=SET_LASTS_DAYS)).isoformat(),
        model_values=materials.engine_values(ParameterValues()),
        cpu_kv_cache_gib=materials.source.cpu_kv_cache_gib,
    )
