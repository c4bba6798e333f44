"""``retune tune``: one study under Prefect or offline, its verdict, and where everything is."""

import sys
from importlib.util import find_spec
from pathlib import Path

from flows.environment import Home, home, quiet
from flows.output import print_json, print_lines, print_table
from flows.prefect_server import prepare_prefect
from flows.recall import shared_outcomes
from flows.study_run import StudyReport
from tasks.adapters.config_files.loading import load_study
from tasks.domain.errors import ConfigError
from tasks.domain.site_files import StudyFiles
from tasks.domain.steps import Evaluated
from tasks.domain.study_report import verdict_lines
from tasks.domain.study_request import StudyRequest
from tasks.domain.study_table import TABLE_COLUMNS, trial_row


def tune_command(study: Path, *, offline: Path | None = None, as_json: bool) -> int:
    """Run the study and print its verdict; 0 whenever it ended with a decision.

    ``offline`` is the home of a run that needs neither Prefect nor MLflow.
    """
    if offline is not None:
        request, report = _offline(study, Home(root=offline.resolve()))
    else:
        request, report = _under_prefect(study)
    if as_json:
        print_json(_document(request, report))
    else:
        _print(request, report)
    return 0


def _under_prefect(study: Path) -> tuple[StudyRequest, StudyReport]:
    load_study(study)  # a wrong file is told before the server starts
    prepare_prefect(home())
    from flows.prefect_flows import tune

    return tune(study=str(study))


def _offline(study: Path, place: Home) -> tuple[StudyRequest, StudyReport]:
    from flows.host import commit_tags
    from flows.preparation import prepare_study
    from flows.progress import Reporter
    from flows.study_run import conduct_study

    reporter = Reporter(quiet=quiet())
    files = load_study(study)
    _check_evaluation(files, place)
    materials = prepare_study(files, place, reporter)
    report = conduct_study(materials, reporter=reporter, tags=commit_tags(), offline=True)
    return materials.request, report


def _check_evaluation(files: StudyFiles, place: Home) -> None:
    """Refuse a study that would end without its accuracy gate after all its load was offered."""
    store = shared_outcomes(place)
    known = (store[key].outcome for key in store if key in store)  # an unreadable one is absent
    if (
        files.evaluation is None
        or find_spec("lm_eval") is not None
        or any(isinstance(outcome, Evaluated) for outcome in known)
    ):
        return
    raise ConfigError(
        f"{files.path}: evaluation: lm-eval is not installed beside {sys.executable}; install "
        "lm-eval[api] there, copy the home's checkpoint-outcomes/ from where the checkpoints were "
        "evaluated, or leave evaluation out where all arms serve one checkpoint",
        code="EVALUATION_NOT_INSTALLED",
    )


def _document(request: StudyRequest, report: StudyReport) -> dict[str, object]:
    return {
        "study": request.name,
        "study_id": request.study_id,
        "decision": report.result.decision,
        "trials": list(report.result.trials),
        "report": str(report.report),
        "parameter_set": str(report.publication.path),
        "registered": {
            "name": report.publication.name,
            "version": report.publication.version,
            "aliases": list(report.publication.aliases),
            "error": report.publication.error,
        },
        "mlflow": {
            "tracking_uri": report.recording.tracking_uri,
            "experiment": report.recording.experiment,
            "run_ids": [run.run_id for run in report.recording.runs],
            "error": report.recording.error,
        },
    }


def _print(request: StudyRequest, report: StudyReport) -> None:
    rows = [trial_row(trial) for trial in report.result.trials]
    print_table(f"{request.name}: regime {request.regime.value}", TABLE_COLUMNS, rows)
    print_lines(verdict_lines(request, report.result))
    recording, publication = report.recording, report.publication
    print_lines(["", f"report:        {report.report}", f"parameter set: {publication.path}"])
    if recording.error is not None:
        print_lines([f"not recorded:  {recording.error}"])
        return
    print_lines([f"MLflow:        {recording.tracking_uri}; open it with `make ui`"])
    if publication.error is not None:
        print_lines([f"not registered: {publication.error}"])
    else:
        aliases = ", ".join(publication.aliases) or "no alias"
        print_lines(
            [f"registered:    {publication.name} version {publication.version} ({aliases})"]
        )
