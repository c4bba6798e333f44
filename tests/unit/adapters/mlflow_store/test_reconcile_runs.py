import os
import subprocess
import sys
from datetime import datetime

import psutil
import pytest
import yaml

from tasks.adapters.mlflow_store.owner import heartbeat_ms, owner_lives, owner_tags
from tasks.adapters.mlflow_store.reconcile import close_stale_runs, is_abandoned


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_only_the_reported_dead_run_is_closed_at_its_last_heartbeat(store, shared_dir):
    case = yaml.safe_load((shared_dir / "cases" / "g-01.yaml").read_text(encoding="utf-8"))
    alive: dict[str, bool | None] = {}
    store.ensure_experiment("e")
    for given in case["input"]["runs"]:
        tags = {f"retune.{name}": str(value) for name, value in given["tags"].items()}
        if tags:
            tags["retune.key"] = given["run"]
        store.create_run("1", given["run"], None, tags)
        known = given["process_alive"]
        alive[tags.get("retune.key", "")] = known if isinstance(known, bool) else None
    closed = close_stale_runs(
        store,
        "e",
        lives=lambda tags: alive[tags.get("retune.key", "")],
        now_ms=ms(case["input"]["now"]),
        stale_after_s=case["input"]["stale_after_s"],
    )
    by_name = {run.name: run for run in store.runs.values()}
    expected = case["expected"]["A"]
    assert closed == (by_name["A"].run_id,)
    assert by_name["A"].status == expected["set_status"]
    assert store.ended[by_name["A"].run_id] == ms("2026-12-01T01:00:00Z")
    assert by_name["A"].tags["ended_by"] == "reconciler"
    assert {by_name[name].status for name in "BCD"} == {"RUNNING"}


@pytest.mark.parametrize(
    ("lives", "age_s", "abandoned"),
    [
        (False, 1, True),  # known to be gone: no need to wait
        (True, 5_000, False),  # lives: slow, not dead
        (None, 899, False),
        (None, 901, True),
    ],
)
def test_an_unknown_process_is_given_its_time(lives, age_s, abandoned):
    tags = {"retune.key": "k", "retune.heartbeat": "2026-12-01T01:00:00Z"}
    now = ms("2026-12-01T01:00:00Z") + age_s * 1000
    assert is_abandoned(tags, lives, now_ms=now, stale_after_s=900) is abandoned


def test_a_run_without_heartbeat_of_an_unknown_process_is_left_alone():
    assert not is_abandoned({"retune.key": "k"}, None, now_ms=10**13, stale_after_s=900)


def test_an_experiment_that_is_not_there_has_no_stale_runs(store):
    assert close_stale_runs(store, "e", lives=lambda _: False, now_ms=0, stale_after_s=1) == ()


def test_this_process_lives_and_an_ended_one_does_not():
    tags = owner_tags(1_764_550_800_000)
    host, boot = tags["retune.host"], tags["retune.boot_id"]
    assert owner_lives(tags, host=host, boot=boot) is True
    assert heartbeat_ms(tags) == 1_764_550_800_000
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = {**tags, "retune.pid": str(ended.pid)}
    assert owner_lives(gone, host=host, boot=boot) is False


def test_a_pid_that_was_given_to_a_later_process_does_not_keep_a_run_open():
    tags = owner_tags(0)
    started = psutil.Process(os.getpid()).create_time()
    tags["retune.process_started"] = str(started - 3_600)
    alive = owner_lives(tags, host=tags["retune.host"], boot=tags["retune.boot_id"])
    assert alive is False


def test_another_boot_is_dead_and_another_host_is_unknown():
    tags = {**owner_tags(0), "retune.boot_id": "b1"}
    assert owner_lives(tags, host=tags["retune.host"], boot="b2") is False
    assert owner_lives(tags, host="elsewhere", boot="b1") is None
