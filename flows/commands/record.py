"""``retune record``: copy a run's evidence to MLflow, now or again."""

from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from flows.recording import record_folder
from flows.study_folder import StudyFolder


def record_command(folder: Path, *, as_json: bool) -> int:
    """Record the folder and say where its runs stand."""
    recording = record_folder(StudyFolder(path=folder.absolute()), home())
    if as_json:
        print_json(recording)
    else:
        print_lines([f"{recording.experiment} at {recording.tracking_uri}"])
        print_lines(f"{run.key}: run {run.run_id}" for run in recording.runs)
    return 0
