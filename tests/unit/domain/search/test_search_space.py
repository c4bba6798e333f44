"""The search space: what is in it, and why the rest is not."""

import pytest

from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.row import Scenario
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour
from tasks.domain.inflection import Inflection
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.space import SEQS, TOKENS, SearchSpace, build_space
from tasks.domain.search.start_points import starting_points, suggested_levels
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
    (dropped,) = space.dropped
    assert "must be greater than or equal to max_num_seqs (256)" in dropped[1]


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
    assert sum(reason == "the KV pool is too small" for _, reason in space.dropped) == 2


def test_a_reference_that_cannot_run_is_an_error_that_says_why() -> None:
    with pytest.raises(InvalidParameterError, match="cannot run: too large"):
        built(infeasible=lambda values: "too large")


def test_the_same_point_twice_is_refused() -> None:
    twice = (point(16, 512), point(16, 512))
    with pytest.raises(InvalidParameterError, match="given twice"):
        SearchSpace(points=twice, reference=twice[0])


def test_levels_of_a_study_without_any_go_from_the_guide_s_least_to_twice_the_default() -> None:
    levels = suggested_levels({SEQS: 256, TOKENS: 2048}, scenario=Scenario.ONLINE_CHAT)
    assert levels[SEQS] == (16, 32, 64, 128, 256, 512)
    assert levels[TOKENS] == (128, 256, 512, 1024, 2048, 4096)


def test_starts_name_the_inflection_the_guide_and_the_performance_mode_with_their_sources() -> None:
    knee = Inflection(knee=90, choose=70, low=70, high=90, reason="p99 doubles at 90")
    found = starting_points(grid(), scenario=Scenario.ONLINE_CHAT, inflection=knee)
    sources = {(p.max_num_seqs, p.max_num_batched_tokens): use.source for p, use in found}
    assert sources[64, 8192] == "inflection point"
    assert sources[16, 8192].startswith("catalogue: max_num_seqs, guide's values for online chat")
    assert grid().reference not in {p for p, _ in found}


def test_the_guide_s_doubt_travels_with_its_value() -> None:
    found = starting_points(grid(), scenario=Scenario.ONLINE_CHAT)
    assert any("but on an H200" in use.sentence for _, use in found)
