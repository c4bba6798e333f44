"""One run of a study as it is to stand in the tracking store.

Knows nothing of MLflow: a record is complete and checked before any store is touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.domain.errors import PermanentError
from tasks.domain.metric_names import require_finite, safe_names

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run to record: the study's own (``parent_key`` None) or one of its trials.

    key: evidence id; a second record with the same key and parent updates the run, never adds one.
    series: (name, ((step or milliseconds since the run's start, value), ...)).
    started_ms, ended_ms: Unix time in milliseconds, None where unknown.
    artifacts: folder relative to the study's folder whose files belong to the run, or None.

    Raises:
        MeasurementInvalidError: METRIC_NOT_FINITE if a metric or a series holds NaN or inf.
        PermanentError: RUN_RECORD_INVALID for a key that cannot be searched for, a name given
            twice or a step that is negative or not whole.
    """

    key: str
    name: str
    status: RunStatus
    parent_key: str | None = None
    params: tuple[tuple[str, str], ...] = ()
    metrics: tuple[tuple[str, float], ...] = ()
    series: tuple[tuple[str, tuple[tuple[int, float], ...]], ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    started_ms: int | None = None
    ended_ms: int | None = None
    artifacts: str | None = None

    def __post_init__(self) -> None:
        """Refuse what a store would refuse, or worse accept, hours later."""
        for key in (self.key, self.parent_key):
            if key is not None and (not key or set(key) & set("'\"`\\") or len(key) > 250):
                raise self._invalid(f"key {key!r} needs 1 to 250 characters without quotes")
        for kind, names in (
            ("param", [name for name, _ in self.params]),
            ("metric or series", [*(name for name, _ in self.metrics), *self.series_keys]),
            ("tag", [name for name, _ in self.tags]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise self._invalid(f"{kind} {twice[0]!r} is given twice; one value is needed")
        for name, value in self.metrics:
            require_finite(name, value, run=self.name)
        for name, points in self.series:
            for step, value in points:
                if step < 0 or step != int(step):
                    raise self._invalid(f"series {name!r} has step {step}; whole, >= 0 is needed")
                require_finite(name, value, run=self.name)

    @property
    def series_keys(self) -> tuple[str, ...]:
        """Names of the series as metrics, each under ``series/``."""
        return tuple(series_key(name) for name, _ in self.series)

    def _invalid(self, sentence: str) -> PermanentError:
        return PermanentError(f"run {self.name!r}: {sentence}", code="RUN_RECORD_INVALID")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """Where a record now stands; ``url`` is its page where the store has a web address."""

    key: str
    run_id: str
    experiment_id: str
    url: str | None = None


def series_key(name: str) -> str:
    """Return the metric name of a series, so that it never mixes with a metric of that name."""
    return name if name.startswith("series/") else f"series/{name}"


def safe_metric_names(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return the stored name of every metric and series of a study's runs.

    One mapping for all runs, so that a metric has one name across the study.
    """
    names: set[str] = set()
    for run in runs:
        names.update(name for name, _ in run.metrics)
        names.update(run.series_keys)
    return safe_names(names)


def parents_first(runs: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Return the runs with every parent before the children, otherwise in the given order.

    Raises:
        PermanentError: RUN_RECORD_INVALID if two runs share key and parent.
    """
    seen: set[tuple[str | None, str]] = set()
    for run in runs:
        if (run.parent_key, run.key) in seen:
            raise PermanentError(
                f"two runs have key {run.key!r} under parent {run.parent_key!r}; keys must differ; "
                "use the evidence id, which names the repeat",
                code="RUN_RECORD_INVALID",
            )
        seen.add((run.parent_key, run.key))
    return tuple(sorted(runs, key=lambda run: run.parent_key is not None))
