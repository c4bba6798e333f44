"""The folder of one run's evidence: what lies where, and what was recorded of it."""

import json
from dataclasses import dataclass
from pathlib import Path

from flows.environment import Home
from tasks.adapters.evidence_store import OutcomeStore, write_whole
from tasks.domain.codec import RecordFormatError, from_text, to_text
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet, Regime
from tasks.domain.run_record import RecordedRun, RunRecord
from tasks.domain.steps import StoredOutcome

RECORDED = "recorded.json"
RECORDS = "report/runs.json"
# Outside report/, which is the study's own run's artifacts: the set names that run's id.
SET_FOLDER = "parameter_set"
PRODUCT = f"{SET_FOLDER}/product.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecords:
    """A run's records for the tracking store, and the experiment that they belong to."""

    experiment: str
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFolder:
    """One run's evidence: outcomes by key, trials by arm, and the files of the whole run."""

    path: Path

    @classmethod
    def of(cls, place: Home, name: str, identity: str) -> "StudyFolder":
        """Return the folder of a study, night or release gate by its name and identity."""
        return cls(path=place.studies / f"{name}-{identity}")

    @property
    def outcomes(self) -> OutcomeStore[StoredOutcome]:
        """The outcomes that this run's steps gave."""
        return OutcomeStore(self.path / "outcomes", StoredOutcome)

    def write(self, name: str, text: str) -> Path:
        """Write one file of the whole run and return its path.

        Raises:
            StorageError: if it cannot be written.
        """
        path = self.path / name
        write_whole(path, text)
        return path

    def keep_records(self, records: StudyRecords) -> None:
        """Keep what is to be recorded, so that it can be recorded at any later time."""
        self.write(RECORDS, to_text(records, indent=1))

    def records(self) -> StudyRecords:
        """Return what is to be recorded.

        Raises:
            ConfigError: the folder holds no records, or they were cut off.
        """
        path = self.path / RECORDS
        try:
            return from_text(StudyRecords, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, RecordFormatError) as error:
            raise ConfigError(
                f"{path}: not the records of a run: {error}; give the folder that `retune tune` "
                "named, below the home's studies/"
            ) from error

    def set_file(self, regime: Regime) -> Path:
        """Return where the study's parameter set is written."""
        return self.path / SET_FOLDER / f"{regime.value}.yaml"

    def keep_product(self, product: ParameterSet) -> None:
        """Keep the parameter set that the study's decision left.

        Raises:
            StorageError: if it cannot be written.
        """
        self.write(PRODUCT, to_text(product, indent=1))

    def product(self) -> ParameterSet | None:
        """Return the kept parameter set, None where the run left none (a night, a gate)."""
        try:
            text = (self.path / PRODUCT).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return from_text(ParameterSet, text)
        except RecordFormatError as error:
            raise ConfigError(
                f"{self.path / PRODUCT}: not a parameter set: {error}; run the study again, it "
                "measures nothing anew"
            ) from error

    def note_recorded(self, runs: tuple[RecordedRun, ...]) -> None:
        """Keep where the run stands in the tracking store, for ``retune ui``."""
        rows = [
            {"key": r.key, "run_id": r.run_id, "experiment_id": r.experiment_id, "url": r.url}
            for r in runs
        ]
        self.write(RECORDED, json.dumps(rows, indent=1))


def run_folders(given: Path) -> tuple[StudyFolder, ...]:
    """Return the runs that a folder holds: itself, or those below a home or its studies/.

    Runs that have not ended hold no records and are left out.

    Raises:
        ConfigError: nothing below the folder can be recorded.
    """
    if (given / RECORDS).is_file():
        return (StudyFolder(path=given),)
    found = sorted([*given.glob(f"studies/*/{RECORDS}"), *given.glob(f"*/{RECORDS}")])
    if not found:
        raise ConfigError(
            f"{given}: not the records of a run, and no run that has ended lies below it; give the "
            "folder of `retune tune --offline`, or the one that `retune tune` named, below the "
            "home's studies/"
        )
    return tuple(StudyFolder(path=file.parents[1]) for file in found)


def newest_recorded(place: Home) -> tuple[str, list[str]] | None:
    """Return the experiment's id and the trials' run ids of the run that was recorded last."""
    files = [*place.studies.glob(f"*/{RECORDED}"), *place.elsewhere.glob(f"*/{RECORDED}")]
    found = sorted(files, key=lambda path: path.stat().st_mtime)
    for path in reversed(found):
        rows = json.loads(path.read_text(encoding="utf-8"))
        if rows:
            trials = [row["run_id"] for row in rows[1:]] or [rows[0]["run_id"]]
            return rows[0]["experiment_id"], trials
    return None
