"""What a search of a study believes before it measures: the diagnosis, other studies' curves."""

from dataclasses import replace

import pytest

from tasks.domain.arm_search import ArmSearch, Searcher
from tasks.domain.concurrency_curve import ConcurrencyCurve
from tasks.domain.engine_window import EngineWindow
from tasks.domain.inflection import Inflection
from tasks.domain.parameters import ParameterValues, Regime
from tasks.domain.profile import Profile
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.ours import OurPolicy
from tasks.domain.search.protocol import Budget
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.search.start import search_start
from tasks.domain.search.start_points import starting_points
from tasks.domain.search_curve import known_inflection
from tasks.domain.search_found import SearchReport
from tasks.domain.search_report import search_part
from tasks.domain.steps import Measure, Measured, Outcome, Step, TrialStatus
from tasks.domain.study import drive
from tasks.domain.study_request import Arm, QuantizationPlan, SearchPlan, StudyRequest
from tasks.domain.trial import Trial
from tests.fakes.measurements import CHAT_SLO
from tests.fakes.profiles import window
from tests.fakes.study_script import Script, study_request, two_arms

TUNED = Arm(name="tuned", method="reference", values=ParameterValues(), searched=True)
KNEE = Inflection(knee=96, choose=64, low=64, high=96, reason="p99 rises 4 times at 96")


def caps(reference: int, *, refused: tuple[tuple[str, str], ...] = ()) -> SearchSpace:
    points = tuple(
        Point(
            cell=ParameterValues(),
            max_num_seqs=cap,
            max_num_batched_tokens=2048,
            overrides=int(cap != reference),
        )
        for cap in (4, 16, 64)
    )
    found = next(p for p in points if p.max_num_seqs == reference)
    return SearchSpace(points=points, reference=found, refused=refused)


def searched(space: SearchSpace, seen: EngineWindow, *, points: int) -> SearchReport:
    """Search on an engine whose gauges show ``seen`` wherever a third of the requests is slow."""
    script = Script(live_good={4: (120, 60), 16: (120, 60), 64: (120, 60)})

    def carry_out(step: Step) -> Outcome:
        outcome = script.carry_out(step)
        if isinstance(step, Measure) and isinstance(outcome, Measured):
            return replace(outcome, profile=Profile(window=seen))
        return outcome

    objective = Objective(slo=CHAT_SLO)
    policy = OurPolicy(
        ledger=Ledger(space=space, objective=objective, budget=Budget(trials=points)),
        seed=0,
        starts=starting_points(space, search_start(Regime.PEAK, CHAT_SLO)),
    )
    request = study_request(two_arms()[1], TUNED)
    plan = SearchPlan(probe_s=180.0)
    search = ArmSearch(
        request=replace(request, search=plan),
        arm=TUNED,
        plan=plan,
        searcher=Searcher(
            policy=policy,
            space=space,
            objective=objective,
            envelope=ParameterValues.of({"max_num_seqs": 64, "max_num_batched_tokens": 2048}),
        ),
        recall={},
    )
    return drive(search.run(), carry_out)


def test_a_pool_that_the_diagnosis_calls_full_keeps_larger_caps_from_being_asked() -> None:
    full = searched(caps(16), window(preemptions=30), points=3)
    assert {probe.values.get("max_num_seqs") for probe in full.probes} == {16, 4}
    source = "diagnosis: kv-pressure (guide section 3 step 5, row 5 and section 5 case 1"
    used = [prior for prior in full.probes[1].priors if prior.source.startswith(source)]
    assert [prior.sentence for prior in used if "not asked" in prior.sentence] == [
        "the KV pool ran full at max_num_seqs=16; 1 points above it are not asked"
    ]
    fine = searched(caps(16), window(preemptions=0), points=3)
    assert 64 in {probe.values.get("max_num_seqs") for probe in fine.probes}


def test_the_report_names_every_prior_its_source_and_the_points_that_it_was_used_for() -> None:
    space = caps(16, refused=(("(max_num_seqs=128)", "128 is more than the plan's pool"),))
    report = searched(space, window(preemptions=30), points=3)
    text = search_part(report)
    assert "- catalogue: defaults of this device: vLLM unasked runs (max_num_seqs=16" in text
    assert (
        "- plan and vLLM's checks: 1 of 4 points cannot run and are not asked: "
        "(max_num_seqs=128): 128 is more than the plan's pool (for 0)" in text
    )
    assert "- diagnosis: kv-pressure (guide section 3 step 5, row 5" in text
    assert "- step model: fitted to the requests of the points told so far: 1 points fitted" in text
    for probe in report.probes:
        for prior in probe.priors:
            assert f"- {prior.source}: {prior.sentence} (for " in text


def test_the_guides_values_for_the_regime_are_weighed_first_and_said_with_their_forecast() -> None:
    report = searched(caps(16), window(preemptions=0), points=3)
    guide = [
        prior
        for prior in report.probes[1].priors
        if prior.source.startswith("catalogue: max_num_seqs, guide's values for online batch")
    ]
    assert "regime peak: throughput first (guide section 1.2)" in guide[0].source
    assert guide[0].sentence.startswith("max_num_seqs=128: a larger batch gives more; the nearest")
    assert "(max_num_seqs=64, max_num_batched_tokens=2048) is forecast at" in guide[0].sentence


def other_study(**changes: object) -> StudyRequest:
    return replace(study_request(), name="other", **changes)  # type: ignore[arg-type]


def curved(**changes: object) -> Trial:
    curve = ConcurrencyCurve(quantile=0.99, points=(), inflection=KNEE)
    trial = Trial(arm=two_arms()[1], status=TrialStatus.COMPLETE, curve=curve)
    return replace(trial, **changes)  # type: ignore[arg-type]


def test_a_curve_of_the_same_checkpoint_and_values_holds_whatever_the_arm_is_called() -> None:
    other = other_study(regime=Regime.OFF_PEAK, min_gain_frac=0.2)
    assert known_inflection(study_request(), TUNED, other=other, trial=curved()) == KNEE


@pytest.mark.parametrize(
    ("other", "trial"),
    [
        (other_study(trace_sha256="another"), curved()),
        (other_study(base_values=ParameterValues.of({"max_model_len": 512})), curved()),
        (other_study(), curved(status=TrialStatus.INVALID)),
        (other_study(), curved(curve=None)),
        (
            other_study(),
            curved(
                curve=ConcurrencyCurve(
                    quantile=0.99, points=(), inflection=replace(KNEE, knee=None, high=None)
                )
            ),
        ),
        (other_study(), curved(arm=two_arms()[0])),
        (
            other_study(),
            curved(arm=replace(two_arms()[1], values=ParameterValues.of({"max_num_seqs": 8}))),
        ),
    ],
    ids=["traffic", "base values", "invalid", "no curve", "no knee", "checkpoint", "values"],
)
def test_a_curve_of_anything_else_says_nothing(other: StudyRequest, trial: Trial) -> None:
    assert known_inflection(study_request(), TUNED, other=other, trial=trial) is None


def test_a_curve_of_another_recipe_says_nothing_of_a_quantized_arm() -> None:
    awq = two_arms()[0]
    trial = curved(arm=awq)
    same, another = other_study(), other_study(quantization=QuantizationPlan(group_size=128))
    assert known_inflection(study_request(), awq, other=same, trial=trial) == KNEE
    assert known_inflection(study_request(), awq, other=another, trial=trial) is None
