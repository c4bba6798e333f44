"""Copies a run's evidence to MLflow; a tracker that is down delays that and loses nothing."""

from dataclasses import dataclass
from pathlib import Path

from flows.environment import Home, tracking_uri
from flows.materials import Materials
from flows.step_log import with_times
from flows.study_folder import StudyFolder, StudyRecords
from tasks import record
from tasks.adapters.mlflow_store.store_uri import redacted
from tasks.domain.errors import TuningError
from tasks.domain.run_record import RecordedRun, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Where the runs stand. error: why the store does not hold them yet, None where it does.

    tracking_uri: None for an offline run, which asks no store.
    """

    tracking_uri: str | None
    experiment: str
    runs: tuple[RecordedRun, ...] = ()
    error: str | None = None


def record_runs_of(
    runs: tuple[RunRecord, ...],
    *,
    materials: Materials,
    folder: StudyFolder,
    offline: bool = False,
) -> Recording:
    """Keep the run records in the folder, then record them; an error is kept, not raised.

    ``offline`` only keeps them: ``retune record`` does the rest, here or on another machine.

    Raises:
        StorageError: the records cannot be kept on disk.
    """
    experiment = f"vllm/{materials.request.model}/{materials.host.device.name}"
    timed = with_times(runs, folder.path)
    folder.keep_records(StudyRecords(experiment=experiment, runs=timed))
    if offline:
        later = f"offline; `retune record {materials.place.root}` records it"
        return Recording(tracking_uri=None, experiment=experiment, error=later)
    try:
        return record_folder(folder, materials.place)
    except TuningError as error:
        sentence = f"{error.code}: {error}; `retune record {folder.path}` records it later"
        uri = redacted(tracking_uri(materials.place))
        return Recording(tracking_uri=uri, experiment=experiment, error=sentence)


def record_folder(folder: StudyFolder, place: Home) -> Recording:
    """Record what the folder holds; the same runs once, however often it is called.

    Raises:
        ConfigError: the folder holds no records, or the store is of a kind MLflow gave up.
        TrackerUnavailableError: the store cannot be reached; nothing is lost.
    """
    records = folder.records()
    uri = tracking_uri(place)
    recorded = record.record_study(
        records.runs,
        experiment=records.experiment,
        tracking_uri=uri,
        study_folder=Path(folder.path),
        lock_dir=place.locks,
    )
    folder.note_recorded(recorded)
    if folder.path.parent != place.studies:
        StudyFolder(path=place.elsewhere / folder.path.name).note_recorded(recorded)
    return Recording(tracking_uri=redacted(uri), experiment=records.experiment, runs=recorded)
