"""The search space: what is in it, and why the rest is not."""

import pytest

from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.row import Scenario
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour
from tasks.domain.inflection import Inflection
from tasks.domain.parameters import ParameterValues, Regime
from tasks.domain.search.space import SEQS, TOKENS, SearchSpace, build_space
from tasks.domain.search.start import SearchStart, search_start
from tasks.domain.search.start_points import starting_points, suggested_levels
from tasks.domain.slo import Slo
from tests.fakes.search_points import grid, point

ENGINE = InstalledEngine(version="0.32.0", flavour=Flavour.CUDA, arguments=())
DEFAULTS = {SEQS: 256, TOKENS: 2048}


def built(**changes: object) -> SearchSpace:
    arguments: dict[str, object] = {
        "cells": (ParameterValues(),),
        "levels": {SEQS: (64, 256), TOKENS: (128, 2048)},
        "defaults": DEFAULTS,
        "installed": ENGINE,
    }
    return build_space(**{**arguments, **changes})  # type: ignore[arg-type]


def test_a_point_with_fewer_tokens_than_sequences_is_dropped_with_the_engine_s_reason() -> None:
    space = built()
    assert [(p.max_num_seqs, p.max_num_batched_tokens) for p in space.points] == [
        (64, 128), (64, 2048), (256, 2048),
    ]  # fmt: skip
    (refused,) = space.refused
    assert "must be greater than or equal to max_num_seqs (256)" in refused[1]


def test_overrides_count_the_names_that_differ_from_the_defaults() -> None:
    cells = (ParameterValues(), ParameterValues.of({"enable_prefix_caching": False}))
    by_values = {
        (p.cell.get("enable_prefix_caching"), p.max_num_seqs, p.max_num_batched_tokens): p.overrides
        for p in built(cells=cells).points
    }
    assert by_values[None, 256, 2048] == 0
    assert by_values[None, 64, 128] == 2
    assert by_values[False, 64, 128] == 3


def test_a_name_that_the_engine_lacks_is_dropped_from_its_cell_with_a_sentence() -> None:
    space = built(cells=(ParameterValues.of({"swap_space": 4}),))
    assert space.cells == (ParameterValues(),)
    assert space.dropped[0][0] == "swap_space"
    assert "has no argument swap_space" in space.dropped[0][1]


def test_what_the_plan_rules_out_is_not_a_point() -> None:
    def plan(values: ParameterValues) -> str | None:
        return "the KV pool is too small" if values.get(SEQS) == 64 else None

    space = built(infeasible=plan)
    assert {p.max_num_seqs for p in space.points} == {256}
    assert sum(reason == "the KV pool is too small" for _, reason in space.refused) == 2


def test_a_reference_that_cannot_run_is_an_error_that_says_why() -> None:
    with pytest.raises(InvalidParameterError, match="cannot run: too large"):
        built(infeasible=lambda values: "too large")


def test_the_same_point_twice_is_refused() -> None:
    twice = (point(16, 512), point(16, 512))
    with pytest.raises(InvalidParameterError, match="given twice"):
        SearchSpace(points=twice, reference=twice[0])


def test_levels_of_a_study_without_any_go_from_the_guide_s_least_to_twice_the_default() -> None:
    levels = suggested_levels({SEQS: 256, TOKENS: 2048}, SearchStart(scenario=Scenario.ONLINE_CHAT))
    assert levels[SEQS] == (16, 32, 64, 128, 256, 512)
    assert levels[TOKENS] == (128, 256, 512, 1024, 2048, 4096)


def test_starts_name_the_inflection_the_guide_and_the_performance_mode_with_their_sources() -> None:
    knee = Inflection(knee=90, choose=70, low=70, high=90, reason="p99 doubles at 90")
    start = search_start(
        Regime.PEAK,
        Slo(ttft_s=1.0),
        asked=Scenario.ONLINE_CHAT,
        inflection=knee,
        inflection_source="curve of defaults in demo-1",
    )
    found = starting_points(grid(), start)
    sources = {(p.max_num_seqs, p.max_num_batched_tokens): use.source for p, use in found}
    assert sources[64, 8192] == "inflection point: curve of defaults in demo-1"
    assert sources[16, 8192] == (
        "catalogue: max_num_seqs, guide's values for online chat "
        "(the study's search part names the scenario)"
    )
    assert grid().reference not in {p for p, _ in found}


def test_the_guide_s_doubt_travels_with_its_value() -> None:
    found = starting_points(grid(), SearchStart(scenario=Scenario.ONLINE_CHAT))
    assert any("but on an H200" in use.sentence for _, use in found)


def test_a_value_that_the_space_lacks_says_where_it_was_moved_from() -> None:
    found = starting_points(grid(), SearchStart(scenario=Scenario.ONLINE_CHAT))
    sentences = {(p.max_num_seqs, p.max_num_batched_tokens): use.sentence for p, use in found}
    # The guide says 16 to 32; of 16, 64 and 256 the nearest to 32 (ratio 2) is 16, which is first.
    assert sentences[16, 8192].startswith("max_num_seqs=32: a small batch protects p99; but")
    assert sentences[16, 8192].endswith("(max_num_seqs=32, max_num_batched_tokens=8192)")


@pytest.mark.parametrize(
    ("regime", "slo", "scenario"),
    [
        (Regime.PEAK, Slo(ttft_s=1.0, tpot_s=0.03), Scenario.ONLINE_BATCH),
        (Regime.PEAK, Slo(e2e_s=20.0), Scenario.ONLINE_BATCH),
        (Regime.OFF_PEAK, Slo(ttft_s=1.0), Scenario.ONLINE_CHAT),
        (Regime.OFF_PEAK, Slo(tpot_s=0.03), Scenario.ONLINE_CHAT),
        (Regime.OFF_PEAK, Slo(e2e_s=20.0), None),
        (Regime.FAILOVER, Slo(ttft_s=1.0), None),
    ],
)
def test_the_scenario_follows_from_regime_and_slo_where_the_guide_says_so(
    regime: Regime, slo: Slo, scenario: Scenario | None
) -> None:
    start = search_start(regime, slo)
    assert start.scenario is scenario
    assert ("guide section 1.2" in start.scenario_source) is (scenario is not None)


def test_a_scenario_that_the_study_names_goes_before_the_regime_s() -> None:
    start = search_start(Regime.PEAK, Slo(ttft_s=1.0), asked=Scenario.OFFLINE_BATCH)
    assert start.scenario is Scenario.OFFLINE_BATCH
    levels = suggested_levels({SEQS: 64, TOKENS: 2048}, start)
    assert max(levels[SEQS]) == 256  # the guide's 256 and more, above twice the default


def test_without_a_scenario_only_the_performance_mode_is_left() -> None:
    found = starting_points(built(levels={SEQS: (512,), TOKENS: (4096,)}), SearchStart())
    assert [p.text for p, _ in found] == ["(max_num_seqs=512, max_num_batched_tokens=4096)"]
    assert found[0][1].source.startswith("catalogue: performance_mode")
