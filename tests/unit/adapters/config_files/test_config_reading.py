"""Every wrong file is one clear error: file, path of the key, value, what is allowed."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tasks.adapters.config_files.loading import (
    load_nightly,
    load_parameter_set,
    load_study,
    load_traffic,
)
from tasks.adapters.config_files.parameter_set_file import parameter_set_yaml
from tasks.adapters.config_files.study_schema import KnobScenario
from tasks.domain.catalogue.lookup import row
from tasks.domain.catalogue.row import Scenario
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)
from tasks.domain.search.space import KNOBS
from tasks.domain.trace_profile import profile_trace
from tasks.domain.traffic_model import draw_trace
from tests.conftest import REPOSITORY

CONFIGS = REPOSITORY / "configs"


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIGS, tmp_path / "configs"))


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    "study", sorted((CONFIGS / "studies").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_shipped_study_loads(study: Path) -> None:
    files = load_study(study)
    assert files.arms
    assert files.traffic.regime is files.regime


def test_the_shipped_nightly_file_holds_both_regimes() -> None:
    files = load_nightly(CONFIGS / "nightly.yaml")
    assert [part.regime for part in files.regimes] == [Regime.PEAK, Regime.OFF_PEAK]


@pytest.mark.parametrize("regime", [regime.value for regime in Regime])
def test_every_regime_has_a_shipped_parameter_set(regime: str) -> None:
    found = load_parameter_set(CONFIGS / "parameter_sets" / f"{regime}.yaml")
    assert found.regime.value == regime
    assert found.state is SetState.BASELINE


def test_peak_traffic_is_about_twice_off_peak_traffic() -> None:
    peak, off_peak = (load_traffic(CONFIGS / "traffic" / f"{n}.yaml") for n in ("peak", "off_peak"))
    assert peak.model is not None and off_peak.model is not None
    rates = [
        profile_trace(draw_trace(model, duration_s=900, seed=1)).mean_rate_req_s
        for model in (peak.model, off_peak.model)
    ]
    assert rates[0] is not None and rates[1] is not None
    assert 1.6 < rates[0] / rates[1] < 2.4


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("min_gain_frac: 0.05", "min_gain: 5", ("min_gain", "unknown key", "5", "min_gain_frac")),
        (
            "min_gain_frac: 0.05",
            "min_gain_frac: 5",
            ("min_gain_frac", "less than or equal to 1", "5"),
        ),
        ("duration_s: 60", "duration_s: 90s", ("load.duration_s", "valid number", "'90s'")),
        ("duration_s: 60", "duration_s: -90", ("load.duration_s", "greater than 0", "-90")),
        ("duration_s: 60", "duration_s: .nan", ("load.duration_s", "finite", "nan")),
        ("rate_scales: [1.0,", "rate_scales: [2.0,", ("load", "must hold 1.0")),
        ("margin_points: 1.0", "margin: 1.0", ("evaluation.margin", "margin_points")),
        ("regime: peak", "regime: noon", ("regime", "'peak', 'off_peak' or 'failover'", "'noon'")),
        ("seed: 20231116", "seed: true", ("seed", "valid integer", "True")),
        (", reference: true}", "}", ("arms", "exactly one")),
        ("name: demo", "name: ''", ("name", "match pattern", "''")),
        ("profile_s: 2.0\n", "profile_s: 2.0\nprofile_s: 3.0\n", ("profile_s", "twice", "line")),
        ("slo: ../slo/chat-cpu.yaml", "slo: ../slo/none.yaml", ("none.yaml", "no such file")),
    ],
)
def test_a_wrong_study_is_one_error_that_names_file_key_value_and_what_is_allowed(
    configs: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    study = edited(configs / "studies" / "demo.yaml", old, new)
    with pytest.raises(ConfigError) as error:
        load_study(study)
    for part in (str(configs), *parts):
        assert part in str(error.value)


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("name: demo\narms: [unclosed\n")
    with pytest.raises(ConfigError, match=r"study\.yaml: not valid YAML at line \d+"):
        load_study(path)


def test_an_empty_file_says_that_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("")
    with pytest.raises(ConfigError, match="expected a mapping of keys at the top, found nothing"):
        load_study(path)


def test_a_night_takes_a_registered_set_where_it_names_one(configs: Path) -> None:
    nightly = edited(
        configs / "nightly.yaml",
        "parameter_set: parameter_sets/peak.yaml",
        "parameter_set: registry:smollm2-135m.peak@champion",
    )
    champion = load_parameter_set(configs / "parameter_sets" / "peak.yaml")
    asked = []

    def registered(source: str) -> ParameterSet:
        asked.append(source)
        return replace(champion, values=ParameterValues.of({"max_num_seqs": 4}))

    peak, off_peak = load_nightly(nightly, registered=registered).regimes
    assert asked == ["registry:smollm2-135m.peak@champion"]
    assert peak.parameter_set.values.as_dict() == {"max_num_seqs": 4}
    assert off_peak.parameter_set.values.items == ()
    with pytest.raises(ConfigError, match="'other'"):
        load_nightly(nightly, registered=lambda _: replace(champion, model="other"))
    with pytest.raises(ConfigError, match="name a set's file"):
        load_nightly(nightly)


def test_a_release_gates_a_registered_set_where_the_study_names_one(configs: Path) -> None:
    named = "registry:smollm2-135m.peak@champion"
    study = edited(configs / "studies" / "demo.yaml", "../parameter_sets/peak.yaml", named)
    champion = load_parameter_set(configs / "parameter_sets" / "peak.yaml")
    sets = {named: replace(champion, values=ParameterValues.of({"max_num_seqs": 4}))}
    assert load_study(study, registered=sets.__getitem__).parameter_set == sets[named]
    with pytest.raises(ConfigError, match="parameter_set: parameter set 'peak' is for regime"):
        load_study(study, registered=lambda _: replace(champion, regime=Regime.OFF_PEAK))
    # A study runs without it: no tracking store is asked for a set that only a gate needs.
    assert load_study(study).parameter_set is None


def test_the_sustainable_rate_is_off_until_a_study_asks_for_it(configs: Path) -> None:
    path = configs / "studies" / "demo.yaml"
    assert load_study(path).load.sustainable is None
    edited(path, "# sustainable: {max_probes: 8, probe_s: 60}", "sustainable: {max_probes: 6}")
    plan = load_study(path).load.sustainable
    assert plan is not None
    assert (plan.max_probes, plan.probe_s, plan.highest) == (6, 60.0, 8.0)
    edited(path, "{max_probes: 6}", "{max_probes: 1}")
    with pytest.raises(ConfigError, match=r"load\.sustainable\.max_probes"):
        load_study(path)


def test_a_search_may_name_the_guides_scenario(configs: Path) -> None:
    path = configs / "studies" / "search.yaml"
    search = load_study(path).search
    assert search is not None
    assert search.scenario is None
    search = load_study(
        edited(path, "  probe_s: 20", "  probe_s: 20\n  scenario: online chat")
    ).search
    assert search is not None
    assert search.scenario is Scenario.ONLINE_CHAT
    with pytest.raises(ConfigError, match=r"search\.scenario.*'online chat'.*'RAG'"):
        load_study(edited(path, "20\n  scenario: online chat", "20\n  scenario: RAG"))


def test_the_scenarios_of_a_search_are_those_with_values_for_a_knob() -> None:
    known = {r.scenario.value for name in KNOBS for r in row(name).recommended}
    assert set(get_args(KnobScenario)) == known


def test_a_searched_arm_becomes_one_arm_a_cell(configs: Path) -> None:
    path = configs / "studies" / "search.yaml"
    cells = "  cells: {kv_cache_dtype: [auto, fp8], enable_prefix_caching: [false]}\n  probe_s: 20"
    edited(path, "  probe_s: 20", cells)
    arms = load_study(path).arms
    assert [(arm.name, arm.cell_of, arm.searched) for arm in arms] == [
        ("defaults", "", False),
        ("tuned-kv_cache_dtype-auto-enable_prefix_caching-false", "tuned", True),
        ("tuned-kv_cache_dtype-fp8-enable_prefix_caching-false", "tuned", True),
    ]
    assert arms[2].values.as_dict() == {"kv_cache_dtype": "fp8", "enable_prefix_caching": False}


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ("{max_num_seqs: [4]}", r"search\.cells\.max_num_seqs.*search\.levels"),
        ("{kv_cache_dtype: []}", r"search\.cells\.kv_cache_dtype.*one or more"),
        ("{kv_cache_dtype: [fp8, fp8]}", r"search\.cells\.kv_cache_dtype.*each once"),
    ],
)
def test_cells_that_are_none_are_refused(configs: Path, cells: str, named: str) -> None:
    path = configs / "studies" / "search.yaml"
    edited(path, "  probe_s: 20", f"  cells: {cells}\n  probe_s: 20")
    with pytest.raises(ConfigError, match=named):
        load_study(path)


def test_a_search_may_ask_for_the_rates_of_its_points(configs: Path) -> None:
    path = configs / "studies" / "search.yaml"
    search = load_study(path).search
    assert search is not None
    assert search.sustainable is None
    edited(path, "  probe_s: 20", "  probe_s: 20\n  sustainable: {max_probes: 3, highest: 4}")
    search = load_study(path).search
    assert search is not None
    assert search.sustainable is not None
    plan = search.sustainable
    assert (plan.max_probes, plan.highest, plan.probe_s) == (3, 4.0, 20.0)


@pytest.mark.parametrize("later_s", [20, 60])
def test_a_later_round_is_at_least_a_window_and_less_than_the_first(
    configs: Path, later_s: int
) -> None:
    path = configs / "studies" / "search.yaml"
    edited(path, "  window_s: 30", "  window_s: 30\n  later_round_s: 30")
    assert load_study(path).load.later_round_s == 30.0
    edited(path, "later_round_s: 30", f"later_round_s: {later_s}")
    with pytest.raises(ConfigError, match=r"later_round_s=.*window_s=30.*duration_s=60"):
        load_study(path)


def test_a_study_elsewhere_without_an_evaluation_probes_with_the_shipped_prompts(
    configs: Path,
) -> None:
    study = configs / "studies" / "smoke.yaml"
    shutil.rmtree(configs / "evaluation")
    text = study.read_text()
    line = next(line for line in text.splitlines() if line.startswith("evaluation:"))
    study.write_text(text.replace(f"{line}\n", ""))
    folder = Path(load_study(study).evaluation_folder)
    assert folder == REPOSITORY / "configs" / "evaluation"
    assert (folder / "sanity_prompts.txt").is_file()


def test_traffic_of_another_regime_is_refused(configs: Path) -> None:
    study = edited(configs / "studies" / "demo.yaml", "traffic/peak.yaml", "traffic/off_peak.yaml")
    with pytest.raises(ConfigError, match="regime"):
        load_study(study)


def test_a_parameter_set_of_another_model_is_refused(configs: Path) -> None:
    edited(configs / "parameter_sets" / "peak.yaml", "model: smollm2-135m", "model: other")
    with pytest.raises(ConfigError, match="'other'"):
        load_study(configs / "studies" / "demo.yaml")


def test_a_name_that_is_a_flag_is_refused_with_vllms_spelling(configs: Path) -> None:
    path = edited(
        configs / "parameter_sets" / "peak.yaml", "values: {}", "values: {--max-num-seqs: 8}"
    )
    with pytest.raises(ConfigError, match="max_num_seqs"):
        load_parameter_set(path)


def test_a_written_set_is_read_back_equal(tmp_path: Path) -> None:
    written = ParameterSet(
        name="peak",
        regime=Regime.PEAK,
        state=SetState.CANDIDATE,
        model="m",
        checkpoint="awq",
        values=ParameterValues.of({"max_num_seqs": 64, "enable_prefix_caching": True}),
        provenance=Provenance(
            study_id="abc", mlflow_run_ids=("r1",), expires_on="2026-12-31",
            slo_values=(("attainment_frac", 0.99),),
        ),
        note="candidate",
    )  # fmt: skip
    path = tmp_path / "peak.yaml"
    path.write_text(parameter_set_yaml(written))
    assert load_parameter_set(path) == written
