"""A study that searches live knobs first, carried out without Prefect, MLflow or an engine."""

import contextlib
from dataclasses import replace

import pytest

from tasks.domain.codec import from_text, to_text
from tasks.domain.decision import DecisionOutcome
from tasks.domain.parameters import ParameterValues
from tasks.domain.search_found import SearchReport
from tasks.domain.steps import (
    Deploy,
    Failed,
    Measure,
    PrepareCheckpoint,
    Step,
    TrialStatus,
)
from tasks.domain.study import drive, run_study
from tasks.domain.study_report import study_report
from tasks.domain.study_request import SearchPlan
from tests.fakes.searched_study import (
    BETTER,
    CAPS,
    deploys,
    request,
    run,
    searcher,
)
from tests.fakes.study_script import Script, died


def test_the_best_point_is_found_on_one_live_engine_and_confirmed_on_a_fresh_one() -> None:
    script = Script(live_good=BETTER, good={"reference": (120, 60), "tuned": (180, 0)})
    result = run(script)
    assert deploys(script) == [("tuned", True), ("reference", False), ("tuned", False)]
    (report,) = result.searches
    assert report.found == ParameterValues.of({"max_num_seqs": 16})
    assert report.probes[0].values.get("max_num_seqs") == 64
    assert result.trials[1].arm.values == report.found
    assert result.decision.outcome is DecisionOutcome.PROMOTE
    assert result.decision.winner == "tuned"


def test_the_live_engine_starts_with_the_envelope_and_is_moved_before_each_point() -> None:
    script = Script(live_good=BETTER)
    run(script)
    envelope = next(step.values for step in script.steps if isinstance(step, Deploy))
    assert envelope.get("max_num_seqs") == 64
    moved = [s.live for s in script.steps if isinstance(s, Measure) and s.live is not None]
    assert {values.get("max_num_seqs") for values in moved} == set(CAPS)
    assert all(s.traffic == "search" for s in script.steps if isinstance(s, Measure) and s.live)


def test_defaults_that_nothing_beats_are_not_measured_twice_and_kept() -> None:
    script = Script(live_good={4: (10, 170), 16: (60, 120), 64: (180, 0)})
    result = run(script)
    assert deploys(script) == [("tuned", True), ("reference", False)]
    assert result.trials[1].status is TrialStatus.PRUNED
    assert result.trials[1].failure is not None
    assert result.trials[1].failure.code == "NOTHING_FOUND"
    assert result.decision.outcome is DecisionOutcome.KEEP


def test_two_rounds_interleave_the_arms_a_b_b_a_on_fresh_engines() -> None:
    script = Script(live_good=BETTER, good={"reference": (120, 60)})
    result = run(script, rounds=2)
    assert [arm for arm, live in deploys(script) if not live] == [
        "reference", "tuned", "tuned", "reference",
    ]  # fmt: skip
    names = [m.measurement.load_point.name for m in result.trials[0].measurements]
    assert names == ["x1.00", "x1.00_r1", "x0.50", "x1.00_r2", "x1.00_r3"]
    assert all(len(t.at_regime_rate) == 4 for t in result.trials)


def test_a_later_round_may_be_shorter_and_still_gives_the_noise_floor() -> None:
    study = request(rounds=2)
    study = replace(study, load=replace(study.load, later_round_s=60.0, regime_repeats=1))
    script = Script(live_good=BETTER, good={"reference": (120, 60), "tuned": (180, 0)})
    result = drive(run_study(study, {}, searchers={"tuned": searcher()}), script.carry_out)
    points = [m.measurement.load_point for m in result.trials[1].measurements]
    assert [(p.name, p.duration_s, p.whole_s) for p in points] == [
        ("x1.00", 180.0, None), ("x0.50", 180.0, None), ("x1.00_r1", 60.0, 180.0),
    ]  # fmt: skip
    assert study.load.load_s == 2 * 180.0 + 60.0
    (better,) = [r for r in result.decision.reasons if r.gate == "better"]
    assert "A/A noise floor" in better.sentence
    assert "n=6 windows of 30 s a side" in better.sentence


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 6, 9, 14, 20, 26])
def test_a_search_that_is_killed_goes_on_where_it_stopped(cut: int) -> None:
    class KilledError(Exception):
        pass

    def kill(step: Step) -> None:
        if len(script.steps) == cut:
            raise KilledError

    script = Script(before=kill, live_good=BETTER, good={"reference": (120, 60)})
    with contextlib.suppress(KilledError):
        run(script, rounds=2)
    measured = {s.key for s in script.steps if isinstance(s, Measure) and s.key in script.stored}
    resumed = Script(live_good=BETTER, good={"reference": (120, 60)})
    result = run(resumed, recall=script.stored, rounds=2)
    assert not measured & {s.key for s in resumed.steps if isinstance(s, Measure)}
    whole = run(Script(live_good=BETTER, good={"reference": (120, 60)}), rounds=2)
    assert result.searches == whole.searches
    assert result.decision == whole.decision


def test_a_search_whose_engine_dies_twice_rules_its_arm_out_and_the_study_says_so() -> None:
    script = Script(live_good=BETTER, fails={("tuned", Deploy): [died(), died()]})
    result = run(script)
    assert [t.status for t in result.trials] == [TrialStatus.COMPLETE, TrialStatus.FAILED]
    assert result.searches[0].failure is not None
    assert result.decision.outcome is DecisionOutcome.INCONCLUSIVE


def test_a_checkpoint_that_cannot_be_made_ends_the_search_before_any_engine() -> None:
    broken = Failed(code="QUANTIZATION_FAILED", message="no", status=TrialStatus.FAILED)
    script = Script(fails={("tuned", PrepareCheckpoint): [broken]})
    result = run(script)
    assert deploys(script) == [("reference", False)]
    assert result.searches[0].probes == ()


def test_the_budget_of_points_ends_the_search() -> None:
    result = run(Script(live_good=BETTER), trials=2)
    assert len(result.searches[0].probes) == 2
    assert result.searches[0].stop_code == "TRIALS"


def test_a_report_survives_the_disk() -> None:
    (report,) = run(Script(live_good=BETTER)).searches
    assert from_text(SearchReport, to_text(report)) == report


def test_the_report_tells_every_point_its_reason_and_the_source_of_every_prior() -> None:
    result = run(Script(live_good=BETTER))
    text = study_report(request(), result)
    assert "## Search of tuned: max_num_seqs=16" in text
    assert "max_num_seqs=64, max_num_batched_tokens=2048 | COMPLETE | 180 | 66.7%" in text
    assert "catalogue: defaults of this device" in text
    assert "stopped (" in text


def test_probes_are_lengthened_to_three_tails_of_the_defaults() -> None:
    """Slow requests take 5.2 s, so three tails are under 20 s; in 10 s no queue can grow."""
    script = Script(live_good=BETTER)
    short = replace(request(), search=SearchPlan(probe_s=10.0))
    result = drive(run_study(short, {}, searchers={"tuned": searcher()}), script.carry_out)
    probes = [s.point.duration_s for s in script.steps if isinstance(s, Measure) and s.live]
    assert probes[0] == 10.0
    assert set(probes[1:]) == {20.0}
    assert result.searches[0].probe_s == 20.0
    assert result.searches[0].load_s > sum(probes)  # draining too, and the probe thrown away
    assert len(result.searches[0].probes) == len(probes) - 1
