"""The catalogue against the guide, an installed engine and case a-04."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.catalogue.check import check_values
from tasks.domain.catalogue.effective import effective_values
from tasks.domain.catalogue.installed import (
    EngineArgument,
    InstalledEngine,
    at_least,
    version_key,
)
from tasks.domain.catalogue.lookup import for_engine, guide_rows, row, rows
from tasks.domain.catalogue.row import Kind, Scenario
from tasks.domain.errors import ConfigError
from tasks.domain.hardware import GIB, DeviceClass, Flavour, cpu, gpu
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues
from tasks.domain.problem import Severity

H200 = gpu("NVIDIA H200")
HOST = cpu(memory_bytes=20 * GIB)


def engine(
    version: str = "0.24.0", *, without: tuple[str, ...] = ("swap_space",)
) -> InstalledEngine:
    names = sorted(r.name for r in rows() if r.name not in without)
    arguments = tuple(EngineArgument(name=name) for name in names)
    return InstalledEngine(version=version, flavour=Flavour.CUDA, arguments=arguments)


def codes(
    values: dict[str, ParameterValue],
    *,
    installed: InstalledEngine | None = None,
    model: ModelSpec | None = None,
    on_cpu: bool = False,
) -> list[str]:
    found = check_values(
        ParameterValues.of(values),
        installed=installed,
        model=model,
        device=HOST if on_cpu else H200,
    )
    return [p.code for p in found]


def test_the_guides_eight_parameters_are_all_there() -> None:
    assert {r.name for r in guide_rows()} == {
        "max_num_seqs",
        "max_model_len",
        "gpu_memory_utilization",
        "block_size",
        "swap_space",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "tensor_parallel_size",
    }


def test_every_guide_row_has_recommendations_mistakes_and_a_note_on_the_guide() -> None:
    for r in guide_rows():
        assert r.recommended and r.mistakes and r.guide_note and r.impact, r.name


def test_names_are_unique_and_every_row_has_a_source() -> None:
    names = [r.name for r in rows()]
    assert len(names) == len(set(names))
    assert all(r.source and r.meaning and r.acts_on for r in rows())


def test_every_default_obeys_its_own_row() -> None:
    for r in rows():
        for default in r.defaults:
            if default.value is None or r.removed is not None:
                continue
            assert codes({r.name: default.value}) == [], (r.name, default)


@pytest.mark.parametrize(
    ("name", "scenario", "low", "high"),
    [
        ("max_num_seqs", Scenario.ONLINE_CHAT, 16, 32),
        ("max_num_seqs", Scenario.ONLINE_BATCH, 64, 128),
        ("max_num_seqs", Scenario.OFFLINE_BATCH, 256, None),
        ("max_num_seqs", Scenario.SPECULATIVE, None, 16),
        ("max_model_len", Scenario.LONG_DOCUMENTS, 8192, 16384),
        ("gpu_memory_utilization", Scenario.SHARED_GPU, 0.4, 0.5),
        ("gpu_memory_utilization", Scenario.EMBEDDER_BESIDE, 0.6, 0.7),
        ("gpu_memory_utilization", Scenario.FAILOVER, 0.5, 0.6),
        ("swap_space", Scenario.OFFLINE_BATCH, 16, 32),
        ("tensor_parallel_size", Scenario.MODEL_70B, 4, 8),
    ],
)
def test_a_recommended_range_is_the_guides(
    name: str, scenario: Scenario, low: float | None, high: float | None
) -> None:
    found = row(name).recommendation(scenario)
    assert found is not None
    assert (found.low, found.high) == (low, high)


def test_defaults_depend_on_the_device() -> None:
    assert row("max_num_seqs").default_for(DeviceClass.H100_H200) == 1024
    assert row("max_num_seqs").default_for(DeviceClass.OTHER_GPU) == 256
    assert row("max_num_seqs").default_for(DeviceClass.CPU) == 128
    assert row("block_size").default_for(DeviceClass.CPU) == 128
    assert row("block_size").default_for(DeviceClass.H100_H200) == 16


def test_an_unknown_row_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs"):
        row("max_num_seq")


def test_a_04_swap_space_is_refused_with_the_release_that_removed_it(shared_dir: Path) -> None:
    content = yaml.safe_load((shared_dir / "cases" / "a-04.yaml").read_text())
    expected = content["expected"]["preflight"]
    installed = engine(content["input"]["vllm_version"])
    for value in content["input"]["search_space"]["swap_space"]:
        found = check_values(
            ParameterValues.of({"swap_space": value}), installed=installed, model=None, device=H200
        )
        assert (found[0].code, found[0].name) == (expected["error_code"], expected["argument"])
        assert found[0].since == expected["removed_since"]
        assert expected["vllm_version"] in found[0].sentence


def test_rows_the_engine_lacks_are_dropped_with_one_sentence_each() -> None:
    installed = engine("0.24.0", without=("swap_space", "max_num_queued_reqs"))
    kept, dropped = for_engine(rows(), installed)
    assert len(kept) == len(rows()) - 2
    told = dict(dropped)
    assert "removed in 0.18.0" in told["swap_space"]
    assert "recomputed" in told["swap_space"] and "--kv-offloading-size" in told["swap_space"]
    assert "came in 0.32.0" in told["max_num_queued_reqs"]


def test_a_misspelt_argument_is_refused_by_the_engines_own_list() -> None:
    assert codes({"max_num_seq": 8}, installed=engine()) == ["UNKNOWN_ENGINE_ARGUMENT"]


def test_an_engine_that_nobody_could_ask_is_judged_by_its_release() -> None:
    attached = InstalledEngine(version="0.24.0", flavour=Flavour.CUDA, arguments=())
    assert codes({"max_num_seqs": 8}, installed=attached) == []
    assert codes({"swap_space": 4}, installed=attached) == ["UNKNOWN_ENGINE_ARGUMENT"]
    strange = check_values(
        ParameterValues.of({"brand_new": 1}), installed=attached, model=None, device=H200
    )
    assert [p.severity for p in strange] == [Severity.WARNING]
    kept, dropped = for_engine(rows(), attached)
    assert {name for name, _ in dropped} == {"swap_space", "max_num_queued_reqs"}
    assert len(kept) == len(rows()) - 2


def test_without_an_engine_an_unknown_name_is_only_doubted() -> None:
    found = check_values(
        ParameterValues.of({"swap_space": 4}), installed=None, model=None, device=H200
    )
    assert [p.severity for p in found] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("max_num_seqs", 0, "VALUE_RANGE"),
        ("max_num_seqs", "64", "VALUE_TYPE"),
        ("max_num_seqs", True, "VALUE_TYPE"),
        ("max_num_seqs", 64.0, "VALUE_TYPE"),
        ("gpu_memory_utilization", 0.0, "VALUE_RANGE"),
        ("gpu_memory_utilization", 1.01, "VALUE_RANGE"),
        ("gpu_memory_utilization", float("nan"), "VALUE_RANGE"),
        ("enable_prefix_caching", 1, "VALUE_TYPE"),
        ("performance_mode", "fast", "VALUE_RANGE"),
        ("long_prefill_token_threshold", -1, "VALUE_RANGE"),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_is_refused(
    name: str, value: ParameterValue, code: str
) -> None:
    assert codes({name: value}) == [code]


def test_special_values_outside_the_range_are_allowed() -> None:
    assert codes({"max_model_len": -1}) == []
    assert codes({"max_model_len": "auto"}) == []


def test_the_installed_engines_choices_win_over_the_catalogues() -> None:
    argument = EngineArgument(name="kv_cache_dtype", choices=("auto", "newest"))
    installed = InstalledEngine(version="0.40.0", flavour=Flavour.CUDA, arguments=(argument,))
    assert codes({"kv_cache_dtype": "newest"}, installed=installed) == []
    assert codes({"kv_cache_dtype": "fp8"}, installed=installed) == ["VALUE_RANGE"]


def test_couplings_use_the_defaults_that_the_engine_will_fill_in() -> None:
    # 1024 sequences by default on an H200; 512 tokens a step are fewer, so vLLM lowers its own
    # default and starts; two explicit values clash.
    assert codes({"max_num_batched_tokens": 512}) == []
    clash: dict[str, ParameterValue] = {"max_num_batched_tokens": 512, "max_num_seqs": 1024}
    assert codes(clash) == ["BATCHED_TOKENS_BELOW_SEQS"]


def test_block_size_16_is_refused_on_cpu_only() -> None:
    assert codes({"block_size": 16}, on_cpu=True) == ["BLOCK_SIZE_CPU"]
    assert codes({"block_size": 16}) == []


def test_sizing_the_pool_twice_is_a_warning() -> None:
    both = {"kv_cache_memory_bytes": GIB, "gpu_memory_utilization": 0.5}
    found = check_values(ParameterValues.of(both), installed=None, model=None, device=H200)
    assert [(p.code, p.severity) for p in found] == [("KV_SIZE_TWICE", Severity.WARNING)]


def test_throughput_mode_doubles_only_what_is_unset() -> None:
    mode = ParameterValues.of({"performance_mode": "throughput", "max_num_seqs": 64})
    found = effective_values(mode, device=H200, model_max_len=8192)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (64, 16384)


def test_cpu_defaults_grow_with_the_world_size() -> None:
    found = effective_values(
        ParameterValues.of({"tensor_parallel_size": 2}), device=HOST, model_max_len=8192
    )
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (256, 4096)


@given(st.integers(1, 4096), st.integers(1, 100_000))
def test_filled_in_defaults_never_clash_with_one_explicit_limit(seqs: int, tokens: int) -> None:
    for values in ({"max_num_batched_tokens": tokens}, {"max_num_seqs": min(seqs, 2048)}):
        found = effective_values(ParameterValues.of(values), device=H200, model_max_len=8192)
        assert found.max_num_batched_tokens >= found.max_num_seqs


@pytest.mark.parametrize(
    ("text", "key"),
    [("0.24.0", (0, 24, 0)), ("v0.9", (0, 9, 0)), ("0.32.0+cpu", (0, 32, 0)), ("dev", ())],
)
def test_versions_compare_by_their_release_numbers(text: str, key: tuple[int, ...]) -> None:
    assert version_key(text) == key


def test_0_9_is_before_0_18() -> None:
    assert not at_least("0.9.2", "0.18.0")
    assert at_least("0.18.0", "0.18.0")


def test_flags_are_spelt_with_dashes() -> None:
    assert row("kv_cache_memory_bytes").flag == "--kv-cache-memory-bytes"
    assert row("speculative_config").kind is Kind.JSON
