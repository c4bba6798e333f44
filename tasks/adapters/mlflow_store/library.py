"""The only file that imports mlflow: a store behind ``ports.TrackingStore``.

The import takes seconds, so it happens when a store is opened and not before. Every call names
its run id (MLflow's active run is a thread-local stack and closes the wrong run under asyncio).
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from tasks.adapters.mlflow_store.file_lock import hold_lock
from tasks.adapters.mlflow_store.ports import (
    MetricPoint,
    Pairs,
    StoredModel,
    StoredRun,
    StoredVersion,
)
from tasks.adapters.mlflow_store.store_uri import checked_uri, redacted, sqlite_path
from tasks.domain.errors import TrackerUnavailableError

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

T = TypeVar("T")
_FORCED = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",  # the default cuts long values without a word
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
}
_DEFAULTS = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # 7 retries of up to 120 s would hold a night's study
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
# MLflow's names of errors that a later try may cure; INTERNAL_ERROR includes refused connections.
_PASSING = {"TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR", "REQUEST_LIMIT_EXCEEDED", "ABORTED"}
_PAUSES_S = (0.5, 2.0)
_PAGE = 1000
# MLflow 3 otherwise guesses whether an experiment holds runs or chats, and opens that page.
_KIND = {"mlflow.experimentKind": "custom_model_development"}


def open_store(uri: str) -> "MlflowStore":
    """Import mlflow, open the store and create or check its tables.

    The tables of a sqlite store are made under a lock beside its file: processes that open a new
    store together otherwise end in a schema-migration race.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        TrackerUnavailableError: the store cannot be opened or its schema is another version's.
    """
    address = checked_uri(uri)
    os.environ.update(_FORCED)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    # alembic narrates every migration; a locked database is reported by our own error.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    file = sqlite_path(address)
    with nullcontext() if file is None else hold_lock(file.with_name(f"{file.name}.lock")):
        store = MlflowStore(
            lambda: MlflowClient(tracking_uri=address, registry_uri=address), address=address
        )
        store.find_experiment("Default")
    return store


class MlflowStore:
    """One tracking store through ``MlflowClient``."""

    def __init__(self, connect: "Callable[[], MlflowClient]", *, address: str) -> None:
        """Connect; a sqlite store opens (and initialises) its file here."""
        self._address = address
        self._client = self._call(connect)

    def find_experiment(self, name: str) -> str | None:
        """Return the id of an experiment, None where there is none."""
        found = self._call(lambda: self._client.get_experiment_by_name(name))
        return None if found is None else str(found.experiment_id)

    def ensure_experiment(self, name: str) -> str:
        """Return the id of an experiment; artifacts of a sqlite store lie beside its file."""
        known = self.find_experiment(name)
        if known is not None:
            return known
        file = sqlite_path(self._address)
        place = None
        if file is not None:
            folder = re.sub(r"[^A-Za-z0-9._-]", "_", name)  # runs have ids: folders may be shared
            place = (file.parent / "artifacts" / folder).as_uri()
        return str(
            self._call(
                lambda: self._client.create_experiment(name, artifact_location=place, tags=_KIND)
            )
        )

    def find_runs(self, experiment_id: str, filter_text: str) -> tuple[StoredRun, ...]:
        """Return the runs that are not deleted and match, oldest first."""
        found: list[Run] = []
        token: str | None = None
        while True:
            page = self._call(
                lambda token=token: self._client.search_runs(  # type: ignore[misc]
                    [experiment_id],
                    filter_text,
                    max_results=_PAGE,
                    order_by=["attributes.start_time ASC"],
                    page_token=token,
                )
            )
            found.extend(page)
            token = page.token
            if not token:
                return tuple(_stored(run) for run in found)

    def create_run(
        self, experiment_id: str, name: str, started_ms: int | None, tags: Mapping[str, str]
    ) -> StoredRun:
        """Create a run with its tags in one step."""
        return _stored(
            self._call(
                lambda: self._client.create_run(
                    experiment_id, start_time=started_ms, tags=dict(tags), run_name=name
                )
            )
        )

    def rename_run(self, run_id: str, name: str) -> None:
        """Give a run another name."""
        self._call(lambda: self._client.update_run(run_id, name=name))

    def log(
        self,
        run_id: str,
        *,
        metrics: Sequence[MetricPoint] = (),
        params: Pairs = (),
        tags: Pairs = (),
    ) -> None:
        """Write one batch; points that the store already has are skipped by it."""
        from mlflow.entities import Metric, Param, RunTag

        self._call(
            lambda: self._client.log_batch(
                run_id,
                metrics=[Metric(name, value, ms, step) for name, value, ms, step in metrics],
                params=[Param(name, value) for name, value in params],
                tags=[RunTag(name, value) for name, value in tags],
                synchronous=True,
            )
        )

    def latest_metric_ms(self, run_id: str, name: str) -> int:
        """Return the time of a metric's newest point, 0 where it has none."""
        history = self._call(lambda: self._client.get_metric_history(run_id, name))
        return max((int(point.timestamp) for point in history), default=0)

    def upload(self, run_id: str, file: Path, folder: str | None) -> None:
        """Copy a file into a folder of the run's artifacts."""
        self._call(lambda: self._client.log_artifact(run_id, str(file), folder))

    def upload_bytes(self, run_id: str, content: bytes, path: str) -> None:
        """Write bytes as an artifact of the run (``log_text`` would use the locale's encoding)."""
        place = PurePosixPath(path)
        with TemporaryDirectory() as folder:
            file = Path(folder) / place.name
            file.write_bytes(content)
            self.upload(run_id, file, None if str(place.parent) == "." else str(place.parent))

    def end_run(self, run_id: str, status: str, ended_ms: int | None) -> None:
        """Set a run's status and its end (now, where None)."""
        self._call(lambda: self._client.set_terminated(run_id, status, ended_ms))

    def ensure_model(self, name: str) -> None:
        """Create the registered model where it is missing."""
        if self.find_model(name) is None:
            self._call(lambda: self._client.create_registered_model(name))

    def find_model(self, name: str) -> StoredModel | None:
        """Return a registered model, None where there is none of this name."""
        found = self._call(lambda: self._client.search_registered_models(f"name='{name}'"))
        if not found:
            return None
        aliases = {alias: str(version) for alias, version in dict(found[0].aliases).items()}
        return StoredModel(aliases=aliases, tags=dict(found[0].tags or {}))

    def set_model_tag(self, name: str, key: str, value: str) -> None:
        """Set a tag of a registered model."""
        self._call(lambda: self._client.set_registered_model_tag(name, key, value))

    def versions(self, name: str) -> tuple[StoredVersion, ...]:
        """Return all versions, oldest first."""
        found = self._call(lambda: self._client.search_model_versions(f"name='{name}'"))
        return tuple(sorted((_version(item) for item in found), key=lambda v: int(v.version)))

    def create_version(
        self, name: str, *, run_id: str, folder: str, tags: Mapping[str, str]
    ) -> StoredVersion:
        """Register a folder of a run's artifacts as the next version."""
        source = f"runs:/{run_id}/{folder}"
        return _version(
            self._call(
                lambda: self._client.create_model_version(
                    name, source, run_id=run_id, tags=dict(tags), await_creation_for=0
                )
            )
        )

    def set_version_tags(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        for key, value in tags.items():
            self._call(
                lambda key=key, value=value: self._client.set_model_version_tag(  # type: ignore[misc]
                    name, version, key, value
                )
            )

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Let an alias point at a version, taking it from any other."""
        self._call(lambda: self._client.set_registered_model_alias(name, alias, version))

    def version_of(self, name: str, alias: str) -> StoredVersion | None:
        """Return the version that an alias points at, None where there is none."""
        model = self.find_model(name)
        number = None if model is None else model.aliases.get(alias)
        if number is None:
            return None
        return _version(self._call(lambda: self._client.get_model_version(name, number)))

    def read_bytes(self, run_id: str, path: str) -> bytes:
        """Return the bytes of an artifact."""
        with TemporaryDirectory() as folder:
            local = self._call(lambda: self._client.download_artifacts(run_id, path, folder))
            return Path(local).read_bytes()

    def _call(self, action: Callable[[], T]) -> T:
        """Do one call; try it again twice where MLflow's error may pass."""
        from mlflow.exceptions import MlflowException

        for pause_s in (*_PAUSES_S, None):
            try:
                return action()
            except MlflowException as error:
                if error.error_code in _PASSING and pause_s is not None:
                    time.sleep(pause_s)
                    continue
                code = "TRACKER_UNAVAILABLE" if error.error_code in _PASSING else "TRACKER_REFUSED"
                first_line = str(error).partition("\n")[0][:400]
                raise TrackerUnavailableError(
                    f"tracking store {redacted(self._address)}: {first_line}", code=code
                ) from error
        raise AssertionError("the last try returns or raises")


def _stored(run: "Run") -> StoredRun:
    return StoredRun(
        run_id=run.info.run_id,
        name=run.info.run_name or "",
        status=run.info.status,
        started_ms=run.info.start_time,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
    )


def _version(item: "ModelVersion") -> StoredVersion:
    return StoredVersion(
        version=str(item.version), run_id=item.run_id or "", tags=dict(item.tags or {})
    )
