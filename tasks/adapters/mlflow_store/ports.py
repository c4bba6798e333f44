"""What the recorder needs of a tracking store, so that it is tested without MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KEY_TAG = "retune.key"
PARENT_KEY_TAG = "retune.parent_key"
CONTENT_TAG = "retune.content_sha256"
COMPLETE_TAG = "complete"
ENDED_BY_TAG = "ended_by"

MetricPoint = tuple[str, float, int, int]
"""(name, value, Unix milliseconds, step)."""
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the store has it; ``metrics`` holds the latest value of each."""

    run_id: str
    name: str
    status: str
    started_ms: int
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


class RunStore(Protocol):
    """Runs of one tracking store; every call names its run id, none uses an active run."""

    def find_experiment(self, name: str) -> str | None:
        """Return the id of an experiment, None where there is none."""

    def ensure_experiment(self, name: str) -> str:
        """Return the id of an experiment, creating it where it is missing."""

    def find_runs(self, experiment_id: str, filter_text: str) -> tuple[StoredRun, ...]:
        """Return the runs that are not deleted and match, oldest first."""

    def create_run(
        self, experiment_id: str, name: str, started_ms: int | None, tags: Mapping[str, str]
    ) -> StoredRun:
        """Create a run with its tags in one step."""

    def rename_run(self, run_id: str, name: str) -> None:
        """Give a run another name."""

    def log(
        self,
        run_id: str,
        *,
        metrics: Sequence[MetricPoint] = (),
        params: Pairs = (),
        tags: Pairs = (),
    ) -> None:
        """Write one batch that is within the store's limits."""

    def latest_metric_ms(self, run_id: str, name: str) -> int:
        """Return the time of a metric's newest point."""

    def upload(self, run_id: str, file: Path, folder: str | None) -> None:
        """Copy a file into a folder of the run's artifacts."""

    def upload_bytes(self, run_id: str, content: bytes, path: str) -> None:
        """Write bytes as an artifact of the run."""

    def end_run(self, run_id: str, status: str, ended_ms: int | None) -> None:
        """Set a run's status and its end (now, where None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A registered version: its number, tags and the run that holds its file."""

    version: str
    run_id: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A registered model: the version that each alias points at, and its tags."""

    aliases: Mapping[str, str]
    tags: Mapping[str, str]


class VersionRegistry(Protocol):
    """Registered models of one tracking store."""

    def ensure_model(self, name: str) -> None:
        """Create the registered model where it is missing."""

    def find_model(self, name: str) -> StoredModel | None:
        """Return a registered model, None where there is none of this name."""

    def set_model_tag(self, name: str, key: str, value: str) -> None:
        """Set a tag of a registered model."""

    def versions(self, name: str) -> tuple[StoredVersion, ...]:
        """Return all versions, oldest first."""

    def create_version(
        self, name: str, *, run_id: str, folder: str, tags: Mapping[str, str]
    ) -> StoredVersion:
        """Register a folder of a run's artifacts as the next version."""

    def set_version_tags(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Let an alias point at a version, taking it from any other."""

    def version_of(self, name: str, alias: str) -> StoredVersion | None:
        """Return the version that an alias points at, None where there is none."""

    def read_bytes(self, run_id: str, path: str) -> bytes:
        """Return the bytes of an artifact."""


class TrackingStore(RunStore, VersionRegistry, Protocol):
    """Both halves of a tracking store."""
