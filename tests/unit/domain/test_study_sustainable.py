"""The sustainable rate as a part of a study: probed, recalled, recorded, reported."""

from dataclasses import replace

import pytest

from tasks.domain.codec import from_text, to_text
from tasks.domain.parameters import ParameterValues
from tasks.domain.steps import Failed, Measure, StoredOutcome, TrialStatus
from tasks.domain.study import StudyResult, drive, run_study
from tasks.domain.study_report import study_report
from tasks.domain.study_request import Arm, StudyRequest, SustainablePlan
from tasks.domain.study_runs import study_runs
from tests.fakes.study_script import Script, died, study_request, two_arms

REFERENCE = two_arms()[1]


def request(*arms: Arm, **plan: float) -> StudyRequest:
    whole = study_request(*(arms or (REFERENCE,)))
    sustainable = SustainablePlan(**{"max_probes": 10, "probe_s": 180.0, **plan})
    return replace(whole, load=replace(whole.load, sustainable=sustainable))


def run(script: Script, study: StudyRequest) -> StudyResult:
    return drive(run_study(study, script.stored), script.carry_out)


def probes(script: Script) -> list[float]:
    return [
        round(step.point.rate_scale or 0, 2)
        for step in script.steps
        if isinstance(step, Measure) and step.stop_when_diverged
    ]


def test_a_study_without_the_part_probes_nothing() -> None:
    script = Script()
    run(script, study_request(REFERENCE))
    assert probes(script) == []


def test_every_arm_is_probed_on_its_own_engine_until_the_bracket_is_narrow() -> None:
    script = Script(keeps_up_to=3.0)
    (trial,) = run(script, request(resolution_frac=0.2)).trials
    # 1, 2 pass, 4 fails, 2.83 passes, 3.36 fails: 3.36 / 2.83 = 1.19.
    assert probes(script) == [1.0, 2.0, 4.0, 2.83, 3.36]
    assert trial.sustainable is not None
    assert trial.sustainable.multiple == pytest.approx(2.828, abs=1e-3)
    # The scripted probes offer 400 requests in 180 s, whatever their multiple.
    assert trial.sustainable.req_s == pytest.approx(400 / 180)
    # Probes fail on purpose and are no measurements of the arm.
    assert trial.status is TrialStatus.COMPLETE
    assert [m.measurement.load_point.name for m in trial.measurements] == ["x1.00", "x1.00_r1",
                                                                          "x0.50"]  # fmt: skip


def test_the_number_of_probes_is_bounded_and_that_is_said() -> None:
    script = Script(keeps_up_to=3.0)
    (trial,) = run(script, request(max_probes=3)).trials
    assert probes(script) == [1.0, 2.0, 4.0]
    assert trial.sustainable is not None
    assert trial.sustainable.multiple == 2.0
    assert "stopped after 3 probes" in trial.sustainable.reason


def test_known_probes_are_not_made_again_and_never_stand_for_a_measurement() -> None:
    script = Script(keeps_up_to=3.0)
    first = run(script, request(resolution_frac=0.2))
    again = Script(keeps_up_to=3.0, stored=script.stored)
    second = run(again, request(resolution_frac=0.2))
    assert second.trials[0].sustainable == first.trials[0].sustainable
    assert probes(again) == []
    keys = [s.key for s in script.steps if isinstance(s, Measure)]
    assert len(set(keys)) == len(keys)
    for step in script.steps:
        if isinstance(step, Measure):
            stored = StoredOutcome(step="Measure", outcome=script.stored[step.key])
            assert from_text(StoredOutcome, to_text(stored)) == stored


def test_metrics_and_report_name_the_rate_and_the_rate_a_gpu() -> None:
    arm = replace(REFERENCE, values=ParameterValues.of({"tensor_parallel_size": 2}))
    study = request(arm, resolution_frac=0.2)
    result = run(Script(keeps_up_to=3.0), study)
    parent, child = study_runs(study, result)
    for metrics in (dict(parent.metrics), dict(child.metrics)):
        assert metrics["bench/sustainable_req_s"] == pytest.approx(400 / 180)
        assert metrics["bench/sustainable_req_s_per_gpu"] == pytest.approx(200 / 180)
        assert metrics["bench/sustainable_multiple"] == pytest.approx(2.828, abs=1e-3)
    text = study_report(study, result)
    assert "Sustainable rate: 2.22 req/s, x2.83 of the traffic's (target 99.0%" in text
    assert "| x4 | 2.22 | 400 | 50.0% (" in text


def test_an_arm_that_keeps_no_rate_has_no_metric() -> None:
    study = request(max_probes=4)
    result = run(Script(keeps_up_to=0.0), study)
    names = dict(study_runs(study, result)[1].metrics)
    assert not [name for name in names if "sustainable" in name]
    assert "Sustainable rate: none found" in study_report(study, result)


def test_a_cpu_has_no_rate_a_gpu() -> None:
    study = request()
    study = replace(study, surroundings=replace(study.surroundings, flavour="cpu"))
    names = dict(study_runs(study, run(Script(), study))[1].metrics)
    assert "bench/sustainable_req_s" in names
    assert "bench/sustainable_req_s_per_gpu" not in names


def test_an_engine_that_dies_twice_under_a_probe_fails_the_trial() -> None:
    def dies(step: object) -> None:
        if isinstance(step, Measure) and step.stop_when_diverged:
            script.fails[("reference", Measure)] = [died()]

    script = Script()
    script.before = dies
    (trial,) = run(script, request()).trials
    assert trial.status is TrialStatus.FAILED
    assert isinstance(trial.failure, Failed)
    assert trial.sustainable is None
