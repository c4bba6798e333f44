"""Copies a run's evidence to MLflow; a tracker that is down delays that and loses nothing."""

import shlex
import sys
from dataclasses import dataclass

from flows.environment import tracking_uri
from flows.materials import Materials
from flows.study_folder import StudyFolder
from tasks import record
from tasks.adapters.mlflow_store.store_uri import redacted
from tasks.domain.errors import TuningError
from tasks.domain.run_record import RecordedRun, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Where the runs stand. error: why the store does not hold them yet, None where it does."""

    tracking_uri: str
    experiment: str
    runs: tuple[RecordedRun, ...] = ()
    error: str | None = None


def experiment_name(materials: Materials) -> str:
    """Return ``vllm/<model>/<device>``."""
    return f"vllm/{materials.request.model}/{materials.host.device.name}"


def record_runs_of(
    runs: tuple[RunRecord, ...], *, materials: Materials, folder: StudyFolder
) -> Recording:
    """Record the runs and remember where they stand; an error is kept, not raised.

    The evidence lies in the study's folder: the same command again measures nothing and records.
    """
    uri = tracking_uri(materials.place)
    experiment = experiment_name(materials)
    try:
        recorded = record.record_study(
            runs,
            experiment=experiment,
            tracking_uri=uri,
            study_folder=folder.path,
            lock_dir=materials.place.locks,
        )
    except TuningError as error:
        again = shlex.join(["retune", *sys.argv[1:]])
        sentence = f"{error.code}: {error}; the evidence is in {folder.path}; `{again}` records it"
        return Recording(tracking_uri=redacted(uri), experiment=experiment, error=sentence)
    folder.note_recorded(recorded)
    return Recording(tracking_uri=redacted(uri), experiment=experiment, runs=recorded)
