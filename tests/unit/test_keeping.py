"""What a study leaves when it is killed at any step: everything measured is in its report."""

from pathlib import Path

import pytest

from flows.keeping import Keeper
from flows.study_folder import StudyFolder
from tasks.domain.codec import from_text
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Measure, Outcome, Step
from tasks.domain.study import drive, run_study
from tasks.domain.study_so_far import StudySoFar
from tasks.domain.trial import Trial
from tests.fakes.searched_study import BETTER, request, searcher
from tests.fakes.study_script import Script

MEASURED = 7  # three points of the search, two arms in two rounds


class KilledError(Exception):
    """Stands for the kill."""


def killed_at(folder: StudyFolder, measurement: int) -> list[Measure]:
    """Run the study until it begins that measurement; return those that had ended."""
    script, ended = Script(live_good=BETTER, good={"reference": (120, 60)}), list[Measure]()
    so_far = StudySoFar()

    def carry_out(step: Step) -> Outcome:
        if isinstance(step, Measure) and len(ended) == measurement:
            raise KilledError
        outcome = script.carry_out(step)
        if isinstance(step, Measure):
            ended.append(step)
        return outcome

    study = request(rounds=2)
    keeper = Keeper(request=study, folder=folder, so_far=so_far)
    running = run_study(study, {}, searchers={"tuned": searcher()}, so_far=so_far)
    with pytest.raises(KilledError):
        drive(running, keeper.before_each(carry_out))
    return ended


@pytest.mark.parametrize("measurement", range(1, MEASURED))
def test_everything_measured_before_a_kill_is_in_the_report_and_the_records(
    measurement: int, tmp_path: Path
) -> None:
    ended = killed_at(StudyFolder(path=tmp_path), measurement)
    assert len(ended) == measurement
    search = from_text(SearchReport, (tmp_path / "report/search-tuned.json").read_text())
    trials = {
        path.parent.name: from_text(Trial, path.read_text())
        for path in tmp_path.glob("trials/*/trial.json")
    }
    kept = [probe.key for probe in search.probes]
    kept += [keyed.key for trial in trials.values() for keyed in trial.measurements]
    assert sorted(kept) == sorted(step.key for step in ended)
    report = (tmp_path / "report/report.md").read_text()
    assert "None yet" in report
    assert "goes on from there" in report
    assert ("(RUNNING)" in report) == (measurement < 3)
    for name in trials:
        assert f"## Arm {name}" in report


def test_nothing_is_written_before_anything_was_measured(tmp_path: Path) -> None:
    assert killed_at(StudyFolder(path=tmp_path), 0) == []
    assert list(tmp_path.rglob("*")) == []
