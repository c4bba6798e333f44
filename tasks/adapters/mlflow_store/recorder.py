"""Copies a study's runs into the tracking store, as often as it is asked to.

The study's folder is the truth; the store is a copy of it. Nothing is ever deleted in either.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.adapters.mlflow_store.file_lock import hold_lock, recording_lock
from tasks.adapters.mlflow_store.library import open_store
from tasks.adapters.mlflow_store.owner import owner_tags
from tasks.adapters.mlflow_store.ports import (
    COMPLETE_TAG,
    CONTENT_TAG,
    KEY_TAG,
    PARENT_KEY_TAG,
    RunStore,
    StoredRun,
)
from tasks.adapters.mlflow_store.run_content import artifact_files, content_sha256
from tasks.adapters.mlflow_store.store_uri import checked_uri, sqlite_path
from tasks.adapters.mlflow_store.urls import run_url
from tasks.adapters.mlflow_store.write_run import write_run
from tasks.domain.errors import PermanentError, TrackerUnavailableError
from tasks.domain.run_record import RecordedRun, RunRecord, parents_first, safe_metric_names

_PARENT_RUN_TAG = "mlflow.parentRunId"


def record_runs(
    runs: Sequence[RunRecord],
    *,
    experiment: str,
    tracking_uri: str,
    artifacts_root: Path,
    lock_dir: Path,
) -> tuple[RecordedRun, ...]:
    """Record a study's runs; a run that already stands complete and equal is left alone.

    ``artifacts_root`` is the study's folder. Names are checked before the store is opened, and
    one process at a time writes to a store.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        PermanentError: RUN_RECORD_INVALID, PARENT_RUN_MISSING, METRIC_NAME_EMPTY.
        TrackerUnavailableError: the store cannot be written; the message names the command that
            records later.
    """
    address = checked_uri(tracking_uri)
    ordered = parents_first(runs)
    names = safe_metric_names(ordered)
    try:
        with hold_lock(recording_lock(lock_dir, address)):
            return record_into(
                open_store(address),
                ordered,
                experiment=experiment,
                artifacts_root=artifacts_root,
                names=names,
                web_address=address if sqlite_path(address) is None else None,
            )
    except TrackerUnavailableError as error:
        raise TrackerUnavailableError(
            f"{error}; every result is on disk in {artifacts_root}; "
            f"record it later with `retune record {artifacts_root}`",
            code=error.code,
        ) from error


def record_into(
    store: RunStore,
    ordered: Sequence[RunRecord],
    *,
    experiment: str,
    artifacts_root: Path,
    names: Mapping[str, str],
    web_address: str | None = None,
) -> tuple[RecordedRun, ...]:
    """Record runs, parents before children, into an open store.

    A parent is marked complete only after all of its children stand.
    """
    experiment_id = store.ensure_experiment(experiment)
    run_ids: dict[str, str] = {}
    parents: list[tuple[str, str]] = []
    for record in ordered:
        files = artifact_files(record, ordered, artifacts_root)
        content = content_sha256(record, files or ())
        stored = _find(store, experiment_id, record.key, record.parent_key)
        if stored is not None and _stands(stored, content):
            run_ids[_identity(record)] = stored.run_id
            continue
        stored = _opened(store, experiment_id, record, stored, run_ids)
        run_ids[_identity(record)] = stored.run_id
        _write_or_kill(store, stored, record, names, files)
        if record.parent_key is None:
            parents.append((stored.run_id, content))
        else:
            _complete(store, stored.run_id, content)
    for run_id, content in parents:
        _complete(store, run_id, content)
    return tuple(
        RecordedRun(
            key=record.key,
            run_id=run_ids[_identity(record)],
            experiment_id=experiment_id,
            url=web_address and run_url(experiment_id, run_ids[_identity(record)], web_address),
        )
        for record in ordered
    )


def _identity(record: RunRecord) -> str:
    return record.key if record.parent_key is None else f"{record.parent_key}\n{record.key}"


def _find(store: RunStore, experiment_id: str, key: str, parent: str | None) -> StoredRun | None:
    """Return the run of a key under its parent; of several, a complete one before the oldest."""
    found = [
        run
        for run in store.find_runs(experiment_id, f"tags.`{KEY_TAG}` = '{key}'")
        if run.tags.get(PARENT_KEY_TAG) == parent
    ]
    found.sort(key=lambda run: run.tags.get(COMPLETE_TAG) != "true")
    return found[0] if found else None


def _stands(stored: StoredRun, content: str) -> bool:
    return (
        stored.tags.get(COMPLETE_TAG) == "true"
        and stored.tags.get(CONTENT_TAG) == content
        and stored.status != "RUNNING"
    )


def _opened(
    store: RunStore,
    experiment_id: str,
    record: RunRecord,
    stored: StoredRun | None,
    run_ids: Mapping[str, str],
) -> StoredRun:
    """Return the run to write to, marked as not complete and as written by this process."""
    tags = {COMPLETE_TAG: "false", **owner_tags(int(time.time() * 1000))}
    if stored is not None:
        store.log(stored.run_id, tags=tuple(tags.items()))
        return stored
    tags[KEY_TAG] = record.key
    if record.parent_key is not None:
        tags[PARENT_KEY_TAG] = record.parent_key
        tags[_PARENT_RUN_TAG] = _parent_run_id(store, experiment_id, record, run_ids)
    return store.create_run(experiment_id, record.name, record.started_ms, tags)


def _parent_run_id(
    store: RunStore, experiment_id: str, record: RunRecord, run_ids: Mapping[str, str]
) -> str:
    parent_key = record.parent_key or ""
    if parent_key in run_ids:
        return run_ids[parent_key]
    stored = _find(store, experiment_id, parent_key, None)
    if stored is None:
        raise PermanentError(
            f"run {record.name!r} has parent_key={parent_key!r}, which is neither among the given "
            "runs nor in the store; give the study's own run with its trials",
            code="PARENT_RUN_MISSING",
        )
    return stored.run_id


def _write_or_kill(
    store: RunStore,
    stored: StoredRun,
    record: RunRecord,
    names: Mapping[str, str],
    files: Sequence[tuple[Path, str]] | None,
) -> None:
    """Write a run; when this process is told to stop (SIGINT, or SIGTERM as SystemExit), say so."""
    try:
        write_run(store, stored, record, names=names, files=files)
    except (KeyboardInterrupt, SystemExit):
        store.end_run(stored.run_id, "KILLED", None)
        raise


def _complete(store: RunStore, run_id: str, content: str) -> None:
    store.log(run_id, tags=((CONTENT_TAG, content), (COMPLETE_TAG, "true")))
