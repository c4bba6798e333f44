"""``retune tune``: one study under Prefect, its verdict, and where everything is."""

from pathlib import Path

from flows.environment import home, prepare_prefect
from flows.output import print_json, print_lines, print_table
from flows.study_run import StudyReport
from tasks.adapters.config_files.loading import load_study
from tasks.domain.study_report import verdict_lines
from tasks.domain.study_request import StudyRequest
from tasks.domain.study_table import TABLE_COLUMNS, trial_row


def tune_command(study: Path, *, as_json: bool) -> int:
    """Run the study and print its verdict; 0 whenever it ended with a decision."""
    place = home()
    load_study(study)  # a wrong file is told before the server starts
    prepare_prefect(place)
    from flows.prefect_flows import tune

    request, report = tune(study=str(study))
    if as_json:
        print_json(_document(request, report))
    else:
        _print(request, report, study)
    return 0


def _document(request: StudyRequest, report: StudyReport) -> dict[str, object]:
    return {
        "study": request.name,
        "study_id": request.study_id,
        "decision": report.result.decision,
        "trials": list(report.result.trials),
        "report": str(report.report),
        "parameter_set": str(report.parameter_set),
        "mlflow": {
            "tracking_uri": report.recording.tracking_uri,
            "experiment": report.recording.experiment,
            "run_ids": [run.run_id for run in report.recording.runs],
            "error": report.recording.error,
        },
    }


def _print(request: StudyRequest, report: StudyReport, study: Path) -> None:
    rows = [trial_row(trial) for trial in report.result.trials]
    print_table(f"{request.name}: regime {request.regime.value}", TABLE_COLUMNS, rows)
    print_lines(verdict_lines(request, report.result))
    print_lines(["", f"report:        {report.report}", f"parameter set: {report.parameter_set}"])
    if report.recording.error is not None:
        print_lines([f"not recorded:  {report.recording.error}"])
    else:
        print_lines([f"MLflow:        {report.recording.tracking_uri}; open it with `make ui`"])
