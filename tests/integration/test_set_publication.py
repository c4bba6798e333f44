"""A study's set while the tracking store is away, and once it is back."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.commands.record import record_one
from flows.environment import Home
from flows.publishing import keep_product, publish_product, registry_of
from flows.recording import Recording
from flows.study_folder import StudyFolder, StudyRecords, newest_recorded
from tasks import publish
from tasks.adapters.config_files.parameter_set_file import load_parameter_set
from tasks.domain.errors import TrackerUnavailableError
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)
from tasks.domain.run_record import RecordedRun, RunRecord

GONE = "http://127.0.0.1:9"  # the discard port: nobody listens there
PRODUCT = ParameterSet(
    name="peak",
    regime=Regime.PEAK,
    state=SetState.CANDIDATE,
    model="m",
    checkpoint="reference",
    values=ParameterValues.of({"max_num_seqs": 64}),
    provenance=Provenance(study_id="s", measured_on="2026-12-01", expires_on="2026-12-31"),
    note="candidate",
)
RECORDED = Recording(
    tracking_uri=GONE,
    experiment="vllm/m/gpu",
    runs=(RecordedRun(key="s", run_id="r1", experiment_id="1"),),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Home(root=tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    found = StudyFolder(path=tmp_path / "copied" / "study")
    run = RunRecord(key="s", name="study", status="FINISHED", tags=(("study_id", "s"),))
    found.keep_records(StudyRecords(experiment="vllm/m/gpu", runs=(run,)))
    return found


def test_a_registry_that_is_away_keeps_the_set_on_disk_and_registers_it_later(
    place: Home, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", GONE)
    product = keep_product(folder, PRODUCT)
    told = publish_product(product, folder=folder, place=place, recording=RECORDED)
    assert (told.version, told.aliases) == (None, ())
    assert told.error is not None
    assert f"`retune record {folder.path}` registers it later" in told.error
    assert load_parameter_set(told.path).provenance.mlflow_run_ids == ("r1",)
    with pytest.raises(TrackerUnavailableError):
        record_one(folder, place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    first = record_one(folder, place)
    assert first.publication is not None
    assert (first.publication.version, first.publication.aliases) == ("1", ("candidate",))
    assert record_one(folder, place) == first
    newest = newest_recorded(place)
    assert newest is not None and newest[1] == [first.recording.runs[0].run_id]
    registered = publish.read_set("m.peak", alias="candidate", registry=registry_of(place))
    run_ids = tuple(run.run_id for run in first.recording.runs)
    assert registered.parameter_set.provenance.mlflow_run_ids == run_ids
    assert registered.text == first.publication.path.read_text()


def test_a_baseline_is_a_version_that_nothing_points_at(place: Home, folder: StudyFolder) -> None:
    keep_product(folder, replace(PRODUCT, state=SetState.BASELINE, note="vLLM's own defaults"))
    recorded = record_one(folder, place)
    assert recorded.publication is not None
    assert (recorded.publication.version, recorded.publication.aliases) == ("1", ())


def test_a_set_that_says_the_same_keeps_the_day_of_its_measurements(folder: StudyFolder) -> None:
    keep_product(folder, PRODUCT)
    later = replace(PRODUCT.provenance, measured_on="2027-01-01", expires_on="2027-01-31")
    assert keep_product(folder, replace(PRODUCT, provenance=later)) == PRODUCT
    other = replace(PRODUCT, provenance=later, values=ParameterValues.of({"max_num_seqs": 8}))
    assert keep_product(folder, other) == other
    assert folder.product() == other
