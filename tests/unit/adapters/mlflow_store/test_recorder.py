import json
from dataclasses import replace

import pytest

from tasks.adapters.mlflow_store.recorder import record_into
from tasks.domain.errors import PermanentError, StorageError
from tasks.domain.run_record import RunRecord, parents_first, safe_metric_names

PARENT = RunRecord(
    key="study-1",
    name="study",
    status="FINISHED",
    params=(("trace/sha256", "ab"),),
    metrics=(("bench/goodput_req_s", 17.7),),
    started_ms=1_000,
    ended_ms=9_000,
    artifacts=".",
)
TRIALS = tuple(
    RunRecord(
        key=f"ev-{number}",
        parent_key="study-1",
        name=f"t{number}",
        status="FINISHED",
        params=(("vllm/max_num_seqs", str(2**number)),),
        metrics=(("bench/goodput_req_s", 10.0 + number), ("ttft_p99@32", 1.0)),
        series=(("running", ((0, 1.0), (1_000, 2.0))),),
        tags=(("regime", "peak"),),
        started_ms=2_000,
        ended_ms=3_000,
        artifacts=f"trials/t{number}",
    )
    for number in (1, 2)
)
STUDY = (*TRIALS, PARENT)


@pytest.fixture
def folder(tmp_path):
    for number in (1, 2):
        trial = tmp_path / "trials" / f"t{number}" / "engine"
        trial.mkdir(parents=True)
        (trial / "stderr.log").write_text(f"log {number}")
    (tmp_path / "decision.json").write_text("{}")
    return tmp_path


def record(store, folder, runs=STUDY):
    ordered = parents_first(runs)
    return record_into(
        store,
        ordered,
        experiment="vllm/m/g",
        artifacts_root=folder,
        names=safe_metric_names(ordered),
    )


def content(store):
    """Everything that a reader of the store sees, the writer's own tags apart."""
    by_id = {
        run_id: (
            run.name,
            run.status,
            {k: v for k, v in run.tags.items() if not k.startswith("retune.") or "key" in k},
            run.params,
            run.metrics,
            store.points[run_id],
            store.ended[run_id],
        )
        for run_id, run in store.runs.items()
    }
    return by_id, store.files


def test_a_study_becomes_a_parent_and_flat_children(store, folder):
    parent, *children = record(store, folder)
    assert (parent.key, [run.key for run in children]) == ("study-1", ["ev-1", "ev-2"])
    for child in children:
        tags = store.runs[child.run_id].tags
        assert tags["mlflow.parentRunId"] == parent.run_id
        assert (tags["complete"], tags["regime"]) == ("true", "peak")
    assert store.runs[parent.run_id].metrics == {"bench/goodput_req_s": 17.7}
    assert store.ended == {parent.run_id: 9_000, **{child.run_id: 3_000 for child in children}}


def test_series_points_carry_step_and_time_from_the_run_s_start(store, folder):
    child = record(store, folder)[1]
    points = {point for point in store.points[child.run_id] if point[0] == "series/running"}
    assert points == {("series/running", 1.0, 2_000, 0), ("series/running", 2.0, 3_000, 1_000)}


def test_a_changed_name_is_told_in_an_artifact(store, folder):
    child = record(store, folder)[1]
    assert store.runs[child.run_id].metrics["ttft_p99_at_32"] == 1.0
    told = json.loads(store.files[child.run_id, "metric_names.json"])
    assert told == {"ttft_p99@32": "ttft_p99_at_32"}


def test_a_trial_s_files_go_to_the_trial_and_not_to_the_parent_again(store, folder):
    parent, first, second = record(store, folder)
    assert store.files[first.run_id, "engine/stderr.log"] == b"log 1"
    assert store.files[second.run_id, "engine/stderr.log"] == b"log 2"
    assert [path for run, path in store.files if run == parent.run_id] == ["decision.json"]


def test_recording_again_writes_nothing(store, folder):
    first = record(store, folder)
    writes = store.writes
    assert record(store, folder) == first
    assert store.writes == writes


def test_a_crash_at_any_write_is_repaired_by_recording_again(folder, store):
    record(store, folder)
    wanted, total = content(store), store.writes
    assert total > 20
    for fail_at in range(1, total + 1):
        broken = type(store)()
        broken.fail_at = fail_at
        with pytest.raises(ConnectionError):
            record(broken, folder)
        half = [run for run in broken.runs.values() if run.tags["complete"] == "true"]
        assert not any("mlflow.parentRunId" not in run.tags for run in half)
        record(broken, folder)
        assert content(broken) == wanted


def test_a_corrected_metric_shows_even_where_it_is_smaller(store, folder):
    record(store, folder)
    corrected = replace(TRIALS[0], metrics=(("bench/goodput_req_s", 3.0), ("ttft_p99@32", 1.0)))
    runs = record(store, folder, (corrected, TRIALS[1], PARENT))
    assert len(store.runs) == 3
    assert store.runs[runs[1].run_id].metrics["bench/goodput_req_s"] == 3.0


def test_a_changed_file_is_copied_again(store, folder):
    parent = record(store, folder)[0]
    (folder / "decision.json").write_text('{"verdict": "KEEP"}')
    record(store, folder)
    assert store.files[parent.run_id, "decision.json"] == b'{"verdict": "KEEP"}'


def test_a_changed_param_keeps_the_first_value_and_tells_the_second(store, folder):
    record(store, folder)
    changed = replace(PARENT, params=(("trace/sha256", "cd"),), name="study again")
    parent = record(store, folder, (*TRIALS, changed))[0]
    run = store.runs[parent.run_id]
    assert run.params == {"trace/sha256": "ab"}
    assert run.tags["retune.changed_param.trace/sha256"] == "cd"
    assert run.name == "study again"


def test_a_long_value_is_kept_whole_in_an_artifact(store, folder):
    long = "x" * 6_001
    parent = record(store, folder, (replace(PARENT, params=(("vllm/args", long),)),))[0]
    value = store.runs[parent.run_id].params["vllm/args"]
    assert value.startswith("sha256:")
    assert store.files[parent.run_id, "long_values/vllm_args.txt"] == long.encode()


def test_many_points_go_in_batches_that_the_store_takes(store, folder):
    series = (("kv", tuple((step, 0.5) for step in range(2_500))),)
    params = tuple((f"p{number}", "v") for number in range(230))
    parent = record(store, folder, (replace(PARENT, series=series, params=params),))[0]
    # 2,500 points of the series and one metric; the fake refuses batches above MLflow's limits
    assert len(store.points[parent.run_id]) == 2_501
    assert len(store.runs[parent.run_id].params) == 230


def test_one_evidence_under_two_studies_is_a_run_of_each(store, folder):
    record(store, folder)
    other = replace(PARENT, key="study-2", artifacts=None)
    record(store, folder, (other, replace(TRIALS[0], parent_key="study-2")))
    assert len(store.runs) == 5


def test_trials_find_a_parent_that_was_recorded_before(store, folder):
    parent = record(store, folder, (PARENT,))[0]
    child = record(store, folder, TRIALS[:1])[0]
    assert store.runs[child.run_id].tags["mlflow.parentRunId"] == parent.run_id


def test_trials_without_a_parent_are_refused(store, folder):
    with pytest.raises(PermanentError, match="study-1") as caught:
        record(store, folder, TRIALS)
    assert caught.value.code == "PARENT_RUN_MISSING"


def test_a_missing_folder_is_marked_and_the_metrics_are_recorded(store, folder):
    run = record(store, folder, (replace(PARENT, artifacts="gone"),))[0]
    assert store.runs[run.run_id].tags["retune.artifacts"] == "missing"
    assert store.runs[run.run_id].metrics == {"bench/goodput_req_s": 17.7}


def test_artifacts_outside_the_study_are_refused(store, folder):
    with pytest.raises(StorageError, match="outside") as caught:
        record(store, folder, (replace(PARENT, artifacts="../elsewhere"),))
    assert caught.value.code == "ARTIFACT_PATH"


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)])
def test_a_run_that_is_told_to_stop_ends_as_killed_and_is_recorded_later(store, folder, signal):
    store.fail_at, store.error = 4, signal
    with pytest.raises(type(signal)):
        record(store, folder)
    assert [run.status for run in store.runs.values()] == ["KILLED"]
    runs = record(store, folder)
    assert {store.runs[run.run_id].status for run in runs} == {"FINISHED"}
    assert len(store.runs) == 3
