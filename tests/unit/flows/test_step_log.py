"""A run carries the times at which it was measured, not those at which it was recorded."""

import json
from pathlib import Path

from flows.step_log import STEP_LOG, with_times
from tasks.domain.run_record import RunRecord

STUDY = RunRecord(key="s", name="study-s", status="FINISHED")
PLAIN = RunRecord(key="s-plain", name="plain", status="FINISHED", parent_key="s")
TUNED = RunRecord(key="s-tuned", name="tuned", status="FINISHED", parent_key="s")


def line(step: str, arm: str, began_s: float, seconds: float) -> str:
    return json.dumps({"step": step, "arm": arm, "began_s": began_s, "seconds": seconds})


def test_a_trial_has_the_times_of_its_arm_and_the_study_those_of_all(tmp_path: Path) -> None:
    lines = [
        line("PrepareCheckpoint", "plain", 1000.0, 5.0),
        line("Deploy", "plain", 1005.0, 60.0),
        line("Measure", "plain", 1065.0, 180.25),
        line("Deploy", "tuned", 1250.0, 60.0),
        line("Stop", "tuned", 1310.0, 2.0),
        line("Stop", "plain", 1400.0, 1.5),
        # The study was run again later: everything was recalled.
        line("PrepareCheckpoint", "plain", 9000.0, 0.0),
        line("PrepareCheckpoint", "tuned", 9000.0, 0.0),
        line("Deploy", "tuned", 9001.0, 60.0)[:-9],  # cut off by a kill
    ]
    (tmp_path / STEP_LOG).write_text("\n".join(lines))
    study, plain, tuned = with_times((STUDY, PLAIN, TUNED), tmp_path)
    assert (study.started_ms, study.ended_ms) == (1_000_000, 1_401_500)
    assert (plain.started_ms, plain.ended_ms) == (1_000_000, 1_401_500)
    assert (tuned.started_ms, tuned.ended_ms) == (1_250_000, 1_312_000)


def test_without_a_log_or_a_step_of_the_arm_the_times_stay_unknown(tmp_path: Path) -> None:
    assert with_times((STUDY, PLAIN), tmp_path) == (STUDY, PLAIN)
    (tmp_path / STEP_LOG).write_text(line("Deploy", "plain", 1.0, 2.0))
    (tuned,) = with_times((TUNED,), tmp_path)
    assert (tuned.started_ms, tuned.ended_ms) == (None, None)
