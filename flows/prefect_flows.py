"""The flows tune, nightly and release as Prefect runs them, by hand and from deployments.

Import this module only after ``prepare_prefect``; a worker's environment does the same through
prefect.yaml.
"""

from collections.abc import Callable
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.events import emit_event
from prefect.flows import Flow
from prefect.runtime import flow_run as current_run
from prefect.states import Completed, Failed

from flows.environment import Home, home, quiet
from flows.host import commit_tags
from flows.nightly_run import NightReport, conduct_night
from flows.prefect_tasks import as_prefect_tasks
from flows.preparation import prepare_study
from flows.progress import Reporter
from flows.release_run import ReleaseReport, conduct_release
from flows.set_source import read_source
from flows.study_run import StudyReport, conduct_study
from tasks.adapters.config_files.loading import load_nightly, load_study
from tasks.deploy import sweep_engines
from tasks.domain.nightly import NightOutcome
from tasks.domain.parameters import ParameterSet
from tasks.domain.release_gate import Gate
from tasks.domain.study_request import StudyRequest

Tags = tuple[tuple[str, str], ...]
TuneResult = tuple[StudyRequest, StudyReport]


def end_leftovers(flow: Flow[..., object], flow_run: FlowRun, state: State) -> None:
    """End the engine of a run that was cancelled or crashed; Prefect calls this by these names."""
    sweep_engines(home().leases)


def run_tags() -> Tags:
    """Return the tags that tie a tracking run to the flow run and the commit."""
    tags = (("prefect.flow_run_id", str(current_run.id)),) if current_run.id else ()
    return (*tags, *commit_tags())


def _registered(place: Home) -> Callable[[str], ParameterSet]:
    """Return what reads a set that a file names as ``registry:NAME@ALIAS``."""
    return lambda source: read_source(source, place).parameter_set


@flow(
    name="tune",
    flow_run_name="tune-{study}",
    on_cancellation=[end_leftovers],
    on_crashed=[end_leftovers],
    persist_result=False,
)
def tune(study: str) -> TuneResult:
    """Run one study file: quantize, deploy, benchmark, evaluate, profile, decide."""
    reporter = Reporter(quiet=quiet())
    materials = prepare_study(load_study(Path(study)), home(), reporter)
    report = conduct_study(materials, reporter=reporter, wrap=as_prefect_tasks, tags=run_tags())
    return materials.request, report


@flow(
    name="nightly",
    on_cancellation=[end_leftovers],
    on_crashed=[end_leftovers],
    persist_result=False,
)
def nightly(
    config: str = "configs/nightly.yaml", regime: str | None = None, url: str | None = None
) -> tuple[NightReport, ...]:
    """Hold the sets in force against fresh traffic; a set that no longer holds emits an event."""
    reporter = Reporter(quiet=quiet())
    place = home()
    files = load_nightly(Path(config), registered=_registered(place))
    reports = conduct_night(
        files,
        place,
        regime=regime,
        url=url,
        reporter=reporter,
        wrap=as_prefect_tasks,
        tags=run_tags(),
    )
    for report in reports:
        if report.verdict.outcome is NightOutcome.RETUNE:
            emit_event(
                event="vllm-retune.retune-needed",
                resource={"prefect.resource.id": f"vllm-retune.set.{report.verdict.parameter_set}"},
                payload={"reasons": list(report.verdict.reasons)},
            )
    return reports


@flow(
    name="release",
    flow_run_name="release-{study}",
    on_cancellation=[end_leftovers],
    on_crashed=[end_leftovers],
    persist_result=False,
)
def release(study: str, url: str | None = None) -> State:
    """Gate a release: the run completes on GO and fails on everything else.

    So the exit code of ``prefect deployment run release/manual --watch`` gates the release.
    """
    reporter = Reporter(quiet=quiet())
    place = home()
    report: ReleaseReport = conduct_release(
        load_study(Path(study), registered=_registered(place)),
        place,
        url=url,
        reporter=reporter,
        wrap=as_prefect_tasks,
        tags=run_tags(),
    )
    verdict = report.verdict
    message = f"{verdict.answer.name}: " + "; ".join(r.sentence for r in verdict.reasons)
    made = Completed if verdict.answer is Gate.GO else Failed
    return made(message=message, data=report)
