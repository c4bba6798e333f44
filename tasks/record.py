"""Recording: copy a study's runs from its folder to the tracking store.

The adapter is imported when it is used, because mlflow takes seconds to import.
"""

from collections.abc import Sequence
from pathlib import Path

from tasks.domain.run_record import RecordedRun, RunRecord


def record_study(
    runs: Sequence[RunRecord],
    *,
    experiment: str,
    tracking_uri: str,
    study_folder: Path,
    lock_dir: Path,
) -> tuple[RecordedRun, ...]:
    """Record the study's run and its trials; safe to call again, also after a crash.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        PermanentError: a record that no store can hold.
        TrackerUnavailableError: nothing is lost; the message names the command for later.
    """
    from tasks.adapters.mlflow_store.recorder import record_runs

    return record_runs(
        runs,
        experiment=experiment,
        tracking_uri=tracking_uri,
        artifacts_root=study_folder,
        lock_dir=lock_dir,
    )


def prepare_store(tracking_uri: str) -> None:
    """Create or check the store's tables, before workers or the web interface start together.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        TrackerUnavailableError: the store cannot be opened.
    """
    from tasks.adapters.mlflow_store.library import open_store

    open_store(tracking_uri)


def reconcile_runs(*, experiment: str, tracking_uri: str, lock_dir: Path) -> tuple[str, ...]:
    """End the runs that a killed process left RUNNING; return their ids.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        TrackerUnavailableError: the store cannot be reached.
    """
    from tasks.adapters.mlflow_store.reconcile import reconcile_stale_runs

    return reconcile_stale_runs(experiment=experiment, tracking_uri=tracking_uri, lock_dir=lock_dir)
