"""The set that a study leaves names everything that it rests on, and no more than was shown."""

from dataclasses import replace

import pytest

from tasks.adapters.config_files.parameter_set_file import load_parameter_set, parameter_set_yaml
from tasks.domain.parameters import ParameterSet, ParameterValues, SetState
from tasks.domain.study import drive, run_study
from tasks.domain.study_product import same_but_dates, study_product
from tests.fakes.study_script import Script, study_request, tuned_arm, two_arms

REFERENCE = two_arms()[1]
MODEL_VALUES = ParameterValues.of({"max_model_len": 512})


def product(script: Script, *arms, measured_on: str = "2026-12-01", **change) -> ParameterSet:
    request = replace(study_request(*(arms or (REFERENCE, tuned_arm(max_num_seqs=64)))), **change)
    result = drive(run_study(request, {}), script.carry_out)
    return study_product(
        request,
        result,
        measured_on=measured_on,
        expires_on="2026-12-31",
        run_ids=("parent", "trial"),
        model_values=MODEL_VALUES,
        cpu_kv_cache_gib=2.0,
    )


def promoted(**change) -> ParameterSet:
    script = Script(good={"reference": (120, 60), "tuned": (180, 0)})
    return product(script, **change)


def test_a_promoted_set_names_everything_that_it_rests_on() -> None:
    made = promoted()
    origin = made.provenance
    assert (made.state, made.values.as_dict()) == (SetState.CANDIDATE, {"max_num_seqs": 64})
    assert origin.mlflow_run_ids == ("parent", "trial")
    assert (origin.study, origin.trace_sha256, origin.checkpoint_sha256) == (
        "unit",
        "t",
        "sha-reference",
    )
    assert (origin.engine, origin.flavour, origin.hardware, origin.device_count, origin.driver) == (
        "0.24.0",
        "cuda",
        "H200",
        1,
        "d",
    )
    assert origin.engine_values.as_dict() == {"max_model_len": 512, "max_num_seqs": 64}
    assert origin.cpu_kv_cache_gib is None  # a GPU sizes its cache otherwise
    assert (origin.measured_on, origin.expires_on) == ("2026-12-01", "2026-12-31")
    assert dict(origin.slo) == {"attainment_frac": 0.9, "tpot_s": 0.1, "ttft_s": 1.0}
    measured = dict(origin.slo_values)
    assert measured["attainment_frac"] == 1.0
    assert measured["goodput_req_s"] == measured["offered_req_s"] == 1.0  # 180 good in 180 s
    assert {"ttft_p50_s", "tpot_p50_s", "e2e_p50_s"} <= measured.keys()
    assert "ttft_p99_s" not in measured  # 180 requests bound no p99


def test_a_baseline_carries_what_was_measured_of_the_defaults_and_does_not_expire() -> None:
    made = product(Script(good={"reference": (120, 60), "tuned": (120, 60)}))
    assert (made.state, made.values.items) == (SetState.BASELINE, ())
    assert made.provenance.expires_on is None
    assert dict(made.provenance.slo_values)["attainment_frac"] == pytest.approx(120 / 180)
    assert made.provenance.engine_values == MODEL_VALUES


def test_a_baseline_claims_nothing_of_a_reference_that_was_not_the_defaults() -> None:
    own = replace(REFERENCE, values=ParameterValues.of({"max_num_seqs": 8}))
    made = product(Script(good={"reference": (120, 60), "tuned": (120, 60)}), own, tuned_arm())
    assert made.state is SetState.BASELINE
    assert made.provenance.slo_values == ()
    assert made.provenance.checkpoint_sha256 is None


@pytest.mark.parametrize("made", [promoted(), promoted(trace_part="start_s=60")])
def test_a_products_yaml_is_read_back_equal(made: ParameterSet, tmp_path) -> None:
    path = tmp_path / "peak.yaml"
    path.write_text(parameter_set_yaml(made))
    assert load_parameter_set(path) == made


def test_the_day_alone_makes_no_other_set() -> None:
    assert same_but_dates(promoted(), promoted(measured_on="2027-01-01"))
    assert not same_but_dates(promoted(), promoted(name="other"))
