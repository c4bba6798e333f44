"""A tracking store in memory with MLflow's own refusals, which can fail at any chosen call."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.adapters.mlflow_store.ports import (
    MetricPoint,
    Pairs,
    StoredModel,
    StoredRun,
    StoredVersion,
)


class MemoryStore:
    """Keeps what it is given; ``fail_at`` is the number of the write that raises ``error``."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.points: dict[str, set[MetricPoint]] = {}
        self.files: dict[tuple[str, str], bytes] = {}
        self.ended: dict[str, int | None] = {}
        self.experiments: dict[str, str] = {}
        self.registered: dict[str, list[StoredVersion]] = {}
        self.aliases: dict[tuple[str, str], str] = {}
        self.model_tags: dict[str, dict[str, str]] = {}
        self.writes = 0
        self.fail_at: int | None = None
        self.error: BaseException = ConnectionError("the store is gone")

    def _write(self) -> None:
        self.writes += 1
        if self.writes == self.fail_at:
            raise self.error

    def find_experiment(self, name: str) -> str | None:
        return self.experiments.get(name)

    def ensure_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, str(len(self.experiments) + 1))

    def find_runs(self, experiment_id: str, filter_text: str) -> tuple[StoredRun, ...]:
        tag = re.fullmatch(r"tags\.`(.+)` = '(.+)'", filter_text)
        runs = tuple(self.runs.values())
        if tag is None:
            assert filter_text == "attributes.status = 'RUNNING'"
            return tuple(run for run in runs if run.status == "RUNNING")
        return tuple(run for run in runs if run.tags.get(tag[1]) == tag[2])

    def create_run(
        self, experiment_id: str, name: str, started_ms: int | None, tags: Mapping[str, str]
    ) -> StoredRun:
        self._write()
        run = StoredRun(
            run_id=f"r{len(self.runs)}",
            name=name,
            status="RUNNING",
            started_ms=77 if started_ms is None else started_ms,
            tags=dict(tags),
            params={},
            metrics={},
        )
        self.runs[run.run_id] = run
        self.points[run.run_id] = set()
        return run

    def rename_run(self, run_id: str, name: str) -> None:
        self._write()
        self.runs[run_id] = replace(self.runs[run_id], name=name)

    def log(
        self,
        run_id: str,
        *,
        metrics: Sequence[MetricPoint] = (),
        params: Pairs = (),
        tags: Pairs = (),
    ) -> None:
        self._write()
        assert len(metrics) <= 1000
        assert len(params) <= 100
        assert len(tags) <= 100
        run = self.runs[run_id]
        for name, value in params:
            assert len(value) <= 6000
            assert run.params.get(name, value) == value, "params are immutable in MLflow"
        assert all(len(value) <= 8000 for _, value in tags)
        self.points[run_id] |= set(metrics)
        latest = {
            name: max((s, ms, v) for n, v, ms, s in self.points[run_id] if n == name)[2]
            for name in {point[0] for point in self.points[run_id]}
        }
        self.runs[run_id] = replace(
            run,
            params={**run.params, **dict(params)},
            tags={**run.tags, **dict(tags)},
            metrics=latest,
        )

    def latest_metric_ms(self, run_id: str, name: str) -> int:
        return max((ms for n, _, ms, _ in self.points[run_id] if n == name), default=0)

    def upload(self, run_id: str, file: Path, folder: str | None) -> None:
        self._write()
        path = file.name if folder is None else f"{folder}/{file.name}"
        self.files[run_id, path] = file.read_bytes()

    def upload_bytes(self, run_id: str, content: bytes, path: str) -> None:
        self._write()
        self.files[run_id, path] = content

    def end_run(self, run_id: str, status: str, ended_ms: int | None) -> None:
        self._write()
        self.runs[run_id] = replace(self.runs[run_id], status=status)
        self.ended[run_id] = ended_ms

    def ensure_model(self, name: str) -> None:
        self.registered.setdefault(name, [])

    def find_model(self, name: str) -> StoredModel | None:
        if name not in self.registered:
            return None
        aliases = {alias: v for (model, alias), v in self.aliases.items() if model == name}
        return StoredModel(aliases=aliases, tags=dict(self.model_tags.get(name, {})))

    def set_model_tag(self, name: str, key: str, value: str) -> None:
        self._write()
        self.model_tags.setdefault(name, {})[key] = value

    def versions(self, name: str) -> tuple[StoredVersion, ...]:
        return tuple(self.registered[name])

    def create_version(
        self, name: str, *, run_id: str, folder: str, tags: Mapping[str, str]
    ) -> StoredVersion:
        number = str(len(self.registered[name]) + 1)
        version = StoredVersion(version=number, run_id=run_id, tags=dict(tags))
        self.registered[name].append(version)
        return version

    def set_version_tags(self, name: str, version: str, tags: Mapping[str, str]) -> None:
        index = int(version) - 1
        old = self.registered[name][index]
        self.registered[name][index] = replace(old, tags={**old.tags, **tags})

    def set_alias(self, name: str, alias: str, version: str) -> None:
        self._write()
        self.aliases[name, alias] = version

    def version_of(self, name: str, alias: str) -> StoredVersion | None:
        number = self.aliases.get((name, alias))
        return None if number is None else self.registered[name][int(number) - 1]

    def read_bytes(self, run_id: str, path: str) -> bytes:
        return self.files[run_id, path]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()
