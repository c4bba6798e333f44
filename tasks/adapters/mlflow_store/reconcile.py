"""Runs that a killed process left RUNNING are closed, and no others."""

import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.adapters.mlflow_store.file_lock import hold_lock, recording_lock
from tasks.adapters.mlflow_store.library import open_store
from tasks.adapters.mlflow_store.owner import boot_id, heartbeat_ms, owner_lives
from tasks.adapters.mlflow_store.ports import ENDED_BY_TAG, KEY_TAG, RunStore
from tasks.adapters.mlflow_store.store_uri import checked_uri

Lives = Callable[[Mapping[str, str]], bool | None]


def reconcile_stale_runs(
    *,
    experiment: str,
    tracking_uri: str,
    lock_dir: Path,
    stale_after_s: float = 900.0,
    now_ms: int | None = None,
) -> tuple[str, ...]:
    """End abandoned runs of an experiment as KILLED at their last heartbeat; return their ids.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        TrackerUnavailableError: the store cannot be read or written.
    """
    address = checked_uri(tracking_uri)
    host, boot = platform.node(), boot_id()
    with hold_lock(recording_lock(lock_dir, address)):
        return close_stale_runs(
            open_store(address),
            experiment,
            lives=lambda tags: owner_lives(tags, host=host, boot=boot),
            now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
            stale_after_s=stale_after_s,
        )


def close_stale_runs(
    store: RunStore, experiment: str, *, lives: Lives, now_ms: int, stale_after_s: float
) -> tuple[str, ...]:
    """Close what ``is_abandoned`` finds among the experiment's RUNNING runs."""
    experiment_id = store.find_experiment(experiment)
    if experiment_id is None:
        return ()
    closed: list[str] = []
    for run in store.find_runs(experiment_id, "attributes.status = 'RUNNING'"):
        if is_abandoned(run.tags, lives(run.tags), now_ms=now_ms, stale_after_s=stale_after_s):
            store.log(run.run_id, tags=((ENDED_BY_TAG, "reconciler"),))
            store.end_run(run.run_id, "KILLED", heartbeat_ms(run.tags) or run.started_ms)
            closed.append(run.run_id)
    return tuple(closed)


def is_abandoned(
    tags: Mapping[str, str], lives: bool | None, *, now_ms: int, stale_after_s: float
) -> bool:
    """Tell whether a RUNNING run has no writer left.

    Ours (it has the product's key) and its process is known to be gone, or its process cannot be
    known from here and its heartbeat is older than ``stale_after_s``. Without a heartbeat a run
    of an unknown process is left alone.
    """
    if KEY_TAG not in tags or lives:
        return False
    if lives is False:
        return True
    beat = heartbeat_ms(tags)
    return beat is not None and now_ms - beat > stale_after_s * 1000
