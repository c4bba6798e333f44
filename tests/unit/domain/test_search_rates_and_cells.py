"""What a study's searches find beside the best point: sustainable rates, and the best cell."""

from dataclasses import replace

import pytest

from tasks.domain.codec import from_text, to_text
from tasks.domain.parameters import ParameterValues
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import Measure, Step, TrialStatus
from tasks.domain.study import StudyResult, drive, run_study
from tasks.domain.study_report import study_report
from tasks.domain.study_request import Arm, SustainablePlan
from tests.fakes.searched_study import BETTER, CAPS, REFERENCE, deploys, request, run, searcher
from tests.fakes.study_script import Script, died

RATES = SustainablePlan(max_probes=6, resolution_frac=0.2)


def with_rates(script: Script, *, recall=None) -> SearchReport:
    study = request()
    assert study.search is not None
    study = replace(study, search=replace(study.search, sustainable=RATES))
    running = run_study(study, recall or {}, searchers={"tuned": searcher()})
    return drive(running, script.carry_out).searches[0]


def rate_steps(script: Script) -> list[Measure]:
    return [s for s in script.steps if isinstance(s, Measure) and s.stop_when_diverged]


def test_the_rates_of_defaults_and_best_point_are_probed_on_the_searchs_own_engine() -> None:
    script = Script(live_good=BETTER, keeps_up_to=3.0)
    report = with_rates(script)
    assert deploys(script)[:2] == [("tuned", True), ("reference", False)]
    caps = [rate.values.get("max_num_seqs") for rate in report.rates]
    assert caps == [64, 16]
    assert {s.live.get("max_num_seqs") for s in rate_steps(script) if s.live} == {64, 16}
    assert all(s.traffic == "search" and s.point.duration_s == 180.0 for s in rate_steps(script))
    for rate in report.rates:
        assert rate.rate is not None
        first = rate.rate.probes[0]  # the point's own measurement: known, not asked again
        assert (first.multiple, first.n) == (1.0, 180)
        assert rate.probes_s == 180.0 * (len(rate.rate.probes) - 1)
    # The defaults kept 120 of 180 at x1, so their limit lies below; the best kept all.
    defaults, best = (rate.rate for rate in report.rates)
    assert defaults is not None
    assert best is not None
    assert defaults.fails_at is not None
    assert best.multiple is not None
    assert defaults.fails_at <= 1.0
    assert 3.0 / 1.2 <= best.multiple <= 3.0
    text = study_report(request(), run_study_result(script, report))
    assert "Sustainable rate of max_num_seqs=16" in text


def run_study_result(script: Script, report: SearchReport) -> StudyResult:
    return replace(run(Script(live_good=BETTER)), searches=(report,))


def test_rates_are_recalled_after_a_kill_and_load_of_the_search_is_counted_apart() -> None:
    script = Script(live_good=BETTER, keeps_up_to=3.0)
    first = with_rates(script)
    again = Script(live_good=BETTER, keeps_up_to=3.0)
    assert with_rates(again, recall=script.stored) == first
    assert rate_steps(again) == []
    plain = run(Script(live_good=BETTER)).searches[0]
    assert first.load_s == plain.load_s


def test_a_rate_probe_whose_engine_is_lost_leaves_the_points_and_says_why() -> None:
    def lose(step: Step) -> None:
        if isinstance(step, Measure) and step.stop_when_diverged:
            script.fails[("tuned", Measure)] = [died(transient=False)]

    script = Script(live_good=BETTER, before=lose)
    report = with_rates(script)
    assert report.found == ParameterValues.of({"max_num_seqs": 16})
    assert report.failure is None
    assert [rate.rate for rate in report.rates] == [None]
    assert "gone" in report.rates[0].note


def test_a_search_report_with_rates_survives_its_json() -> None:
    report = with_rates(Script(live_good=BETTER, keeps_up_to=3.0))
    assert from_text(SearchReport, to_text(report)) == report


CELL = Arm(
    name="tuned-fp8",
    method="reference",
    values=ParameterValues.of({"kv_cache_dtype": "fp8"}),
    searched=True,
    cell_of="tuned",
)
PLAIN = Arm(
    name="tuned-auto", method="reference", values=ParameterValues(), searched=True, cell_of="tuned"
)


class CellScript(Script):
    """Gives every point of the cell ``tuned-fp8`` its own share of good requests."""

    in_fp8: tuple[int, int] = (180, 0)

    def carry_out(self, step: Step):
        if isinstance(step, Measure) and step.live is not None and step.arm == CELL.name:
            kept, self.live_good = self.live_good, dict.fromkeys(CAPS, self.in_fp8)
            outcome = Script.carry_out(self, step)
            self.live_good = kept
            return outcome
        return Script.carry_out(self, step)


@pytest.mark.parametrize(("in_fp8", "best"), [((60, 120), PLAIN), ((180, 0), PLAIN)])
def test_only_the_best_cell_of_an_arm_is_confirmed_and_the_plainer_of_equals(
    in_fp8: tuple[int, int], best: Arm
) -> None:
    script = CellScript(live_good=BETTER, good={"reference": (120, 60)})
    script.in_fp8 = in_fp8
    study = replace(request(), arms=(REFERENCE, PLAIN, CELL))
    running = run_study(study, {}, searchers={a.name: searcher() for a in (PLAIN, CELL)})
    result = drive(running, script.carry_out)
    assert deploys(script) == [
        (PLAIN.name, True), (CELL.name, True), ("reference", False), (best.name, False),
    ]  # fmt: skip
    pruned = {t.arm.name: t.failure for t in result.trials if t.status is TrialStatus.PRUNED}
    assert [failure.code for failure in pruned.values() if failure] == ["CELL_NOT_BEST"]
    assert best.name not in pruned
    assert result.decision.winner == best.name


def test_a_cell_that_serves_more_is_confirmed_though_it_overrides_more() -> None:
    script = CellScript(live_good={4: (60, 120), 16: (120, 60), 64: (120, 60)})
    study = replace(request(), arms=(REFERENCE, PLAIN, CELL))
    running = run_study(study, {}, searchers={a.name: searcher() for a in (PLAIN, CELL)})
    result = drive(running, script.carry_out)
    statuses = {t.arm.name: t.status for t in result.trials}
    assert statuses[CELL.name] is TrialStatus.COMPLETE
    assert statuses[PLAIN.name] is TrialStatus.PRUNED
