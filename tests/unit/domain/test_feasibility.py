"""The engine's start rules, on cases from public reports."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.feasibility import (
    dtype_problems,
    model_parallel_problems,
    parallel_problems,
    scheduler_problems,
)
from tasks.domain.model_spec import ModelSpec
from tasks.domain.problem import Severity


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text())
    return loaded


def test_batched_tokens_rules_agree_with_every_trial_of_a_03(shared_dir: Path) -> None:
    content = case(shared_dir, "a-03")
    for trial in content["input"]["trials"]:
        problems = scheduler_problems(
            max_num_seqs=trial["max_num_seqs"],
            max_num_batched_tokens=trial["max_num_batched_tokens"],
            max_model_len=trial["max_model_len"],
            enable_chunked_prefill=trial["enable_chunked_prefill"],
        )
        expected = content["expected"][str(trial["id"])]
        assert (problems == ()) is expected["valid"], trial
        if not expected["valid"]:
            assert problems[0].sentence.startswith(expected["reason"])


def test_parallel_rules_agree_with_every_trial_of_a_05(shared_dir: Path) -> None:
    content = case(shared_dir, "a-05")
    config = content["input"]["model_config"]
    for trial in content["input"]["trials"]:
        problems = parallel_problems(
            tensor_parallel=trial["tp"],
            num_heads=config["num_attention_heads"],
            num_kv_heads=config["num_key_value_heads"],
            intermediate_size=config["intermediate_size"],
            attention_width=config["hidden_size"],
            group_size=trial.get("group_size"),
        )
        expected = content["expected"][str(trial["id"])]
        assert (problems == ()) is expected["valid"], trial
        if not expected["valid"]:
            wanted = expected["reason"].rstrip(".").lower().removesuffix(" (row-parallel layers)")
            assert wanted[:40] in problems[0].sentence.lower()


def test_a_05_codes_tell_heads_from_groups() -> None:
    heads = parallel_problems(
        tensor_parallel=3, num_heads=64, num_kv_heads=8, intermediate_size=29568
    )
    groups = parallel_problems(
        tensor_parallel=2, num_heads=64, num_kv_heads=8, intermediate_size=29568, group_size=128
    )
    assert [p.code for p in heads] == ["HEADS_NOT_DIVISIBLE"]
    assert [p.code for p in groups] == ["QUANT_SHAPE_NOT_DIVISIBLE"]


def test_dtype_rules_agree_with_every_trial_of_a_06(shared_dir: Path) -> None:
    content = case(shared_dir, "a-06")
    for trial in content["input"]["trials"]:
        problems = dtype_problems(
            version=trial["vllm"],
            model_type=trial["model_type"],
            quantization=trial["quantization"],
            dtype=trial["dtype"],
        )
        expected = content["expected"][str(trial["id"])]
        if expected == "starts":
            assert problems == ()
            continue
        assert problems[0].code == expected["error_code"]
        if "supported" in expected:
            assert list(problems[0].supported) == expected["supported"]
        if "upgrade" in expected.get("note", ""):
            assert "upgrade vLLM" in problems[0].sentence


def test_a_release_nobody_looked_at_gives_a_warning_and_no_refusal() -> None:
    problems = dtype_problems(
        version="0.17.0", model_type="qwen2", quantization="awq", dtype="bfloat16"
    )
    assert [(p.code, p.severity) for p in problems] == [("DTYPE_UNVERIFIED", Severity.WARNING)]


def test_auto_is_never_refused() -> None:
    assert (
        dtype_problems(version="0.11.0", model_type="gemma3", quantization="awq", dtype="auto")
        == ()
    )


def test_half_is_float16_under_another_name() -> None:
    problems = dtype_problems(
        version="0.32.0", model_type="gemma2", quantization=None, dtype="half"
    )
    assert [p.code for p in problems] == ["DTYPE_NOT_SUPPORTED_BY_MODEL"]


def test_the_group_size_is_read_from_the_checkpoint_itself() -> None:
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 29568,
        "vocab_size": 152064,
    }
    awq = {"quant_method": "awq", "bits": 4, "q_group_size": 128, "zero_point": True}
    plain = ModelSpec.from_config(config, name="72b", weight_bytes=None)
    packed = ModelSpec.from_config(
        {**config, "quantization_config": awq}, name="72b-awq", weight_bytes=None
    )
    assert model_parallel_problems(plain, 2) == ()
    assert [p.code for p in model_parallel_problems(packed, 2)] == ["QUANT_SHAPE_NOT_DIVISIBLE"]


@given(st.integers(1, 64), st.integers(1, 16), st.sampled_from([32, 64, 128]))
def test_a_width_of_whole_groups_a_rank_is_always_accepted(
    groups: int, ranks: int, size: int
) -> None:
    problems = parallel_problems(
        tensor_parallel=ranks,
        num_heads=ranks * 4,
        num_kv_heads=ranks,
        intermediate_size=groups * size * ranks,
        group_size=size,
    )
    assert problems == ()


@pytest.mark.parametrize("ranks", [0, -1])
def test_no_ranks_is_refused_without_dividing_by_them(ranks: int) -> None:
    problems = parallel_problems(
        tensor_parallel=ranks, num_heads=8, num_kv_heads=8, intermediate_size=64
    )
    assert [p.code for p in problems] == ["HEADS_NOT_DIVISIBLE"]
