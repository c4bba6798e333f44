"""Writes everything of one run but the tag that declares it complete.

Every step may be repeated: the store skips points that it has, and files are overwritten.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from tasks.adapters.mlflow_store.ports import (
    ENDED_BY_TAG,
    MetricPoint,
    RunStore,
    StoredRun,
)
from tasks.adapters.mlflow_store.run_content import fitting
from tasks.domain.metric_names import safe_names
from tasks.domain.run_record import RunRecord, series_key

# MLflow 3.17 takes 1000 metrics, 100 params, 100 tags and 1 MB a call, 6000 characters a param,
# 8000 a tag; 50 params of 6000 characters stay under 1 MB for any 3-byte text.
_METRICS, _PARAMS, _TAGS = 1000, 50, 40
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 5000
T = TypeVar("T")
NAMES_ARTIFACT = "metric_names.json"
CHANGED_PARAM_TAG = "retune.changed_param."


def write_run(
    store: RunStore,
    stored: StoredRun,
    record: RunRecord,
    *,
    names: Mapping[str, str],
    files: Sequence[tuple[Path, str]] | None,
) -> None:
    """Write tags, params, metrics, series and files of a record, then its status and end.

    files: as ``artifact_files`` gives them; None marks the run with ``retune.artifacts=missing``.
    """
    params, tags, long_values = _pairs(stored, record)
    if files is None:
        tags = (*tags, ("retune.artifacts", "missing"))
    if stored.name != record.name:
        store.rename_run(stored.run_id, record.name)
    for some_tags in _chunks(tags, _TAGS):
        store.log(stored.run_id, tags=some_tags)
    for some_params in _chunks(params, _PARAMS):
        store.log(stored.run_id, params=some_params)
    for points in _chunks(_metric_points(store, stored, record, names), _METRICS):
        store.log(stored.run_id, metrics=points)
    for path, text in long_values:
        store.upload_bytes(stored.run_id, text.encode(), path)
    renamed = {name: names[name] for name in _metric_keys(record) if names[name] != name}
    if renamed:
        text = json.dumps(renamed, indent=1, sort_keys=True, ensure_ascii=False)
        store.upload_bytes(stored.run_id, text.encode(), NAMES_ARTIFACT)
    for file, name in files or ():
        folder = str(PurePosixPath(name).parent)
        store.upload(stored.run_id, file, None if folder == "." else folder)
    store.end_run(stored.run_id, record.status, record.ended_ms)


def _metric_keys(record: RunRecord) -> tuple[str, ...]:
    return (*(name for name, _ in record.metrics), *record.series_keys)


def _pairs(
    stored: StoredRun, record: RunRecord
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return params to write, tags to write, and (artifact path, text) of values too long.

    A param cannot be overwritten in MLflow: the first value stays, a later one becomes a tag.
    """
    safe = safe_names(name for name, _ in record.params)
    params, long_params = fitting(
        [(safe[name], value) for name, value in record.params], limit=_PARAM_CHARACTERS
    )
    changed = [
        (f"{CHANGED_PARAM_TAG}{name}", value)
        for name, value in params
        if stored.params.get(name, value) != value
    ]
    ended_by = [(ENDED_BY_TAG, "recorder")] if ENDED_BY_TAG in stored.tags else []
    tags, long_tags = fitting([*record.tags, *changed, *ended_by], limit=_TAG_CHARACTERS)
    new_params = tuple(pair for pair in params if pair[0] not in stored.params)
    return new_params, tags, (*long_params, *long_tags)


def _metric_points(
    store: RunStore, stored: StoredRun, record: RunRecord, names: Mapping[str, str]
) -> list[MetricPoint]:
    """Return all points, with times taken from the record so that a repeat writes the same ones.

    MLflow shows the point with the greatest (step, time, value), so a corrected value of a
    metric gets a time one millisecond after the one it replaces.
    """
    start_ms = record.started_ms if record.started_ms is not None else stored.started_ms
    end_ms = record.ended_ms if record.ended_ms is not None else start_ms
    points: list[MetricPoint] = []
    for raw, value in record.metrics:
        name, at_ms = names[raw], end_ms
        if stored.metrics.get(name, value) != value:
            at_ms = max(at_ms, store.latest_metric_ms(stored.run_id, name) + 1)
        points.append((name, value, at_ms, 0))
    for raw, series in record.series:
        name = names[series_key(raw)]
        points.extend((name, value, start_ms + step, step) for step, value in series)
    return points


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces of at most ``size`` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
