"""What a set asks of a running engine: moved live, needing a restart, already so."""

from dataclasses import replace

import pytest

from tasks.domain.catalogue.lookup import row
from tasks.domain.catalogue.row import Change
from tasks.domain.live_values import EngineState, ValueChange, change_in, split_values
from tasks.domain.parameters import ParameterValue, ParameterValues

STATE = EngineState(
    change_id=3,
    in_force=ParameterValues.of({"max_num_seqs": 64, "max_num_batched_tokens": 2048}),
    asked=ParameterValues.of({"max_num_seqs": 64, "max_num_batched_tokens": 2048}),
    envelope=ParameterValues.of({"max_num_seqs": 256, "max_num_batched_tokens": 8192}),
    started_with=ParameterValues.of(
        {"max_num_seqs": 256, "kv_cache_dtype": "auto", "dtype": "bfloat16", "max_model_len": 4096,
         "enable_prefix_caching": True, "tensor_parallel_size": 1}
    ),
    version="0.24.0",
    model="m",
    pid=1,
)  # fmt: skip


def test_live_values_inside_the_envelope_move_and_equal_ones_stay() -> None:
    plan = split_values(
        ParameterValues.of({"max_num_seqs": 256, "max_num_batched_tokens": 2048}), STATE
    )
    assert plan.live == (ValueChange(name="max_num_seqs", old=64, new=256),)
    assert plan.unchanged == ("max_num_batched_tokens",)
    assert plan.moved == ParameterValues.of({"max_num_seqs": 256})
    assert (plan.restart, plan.returned) == ((), ())


@pytest.mark.parametrize(
    ("name", "new", "old", "reason"),
    [
        ("max_num_seqs", 257, 64, "the engine was started with 256"),
        ("kv_cache_dtype", "fp8", "auto", "read once, at the start"),
        ("max_model_len", 8192, 4096, "read once, at the start"),
        ("dtype", "auto", "bfloat16", "the engine runs bfloat16"),
        ("quantization", "awq", None, "the engine does not tell its value"),
        ("no_such_value", 1, None, "not in the catalogue"),
        ("tensor_parallel_size", True, 1, "read once, at the start"),
    ],
)
def test_everything_else_needs_a_restart_and_says_why(
    name: str, new: ParameterValue, old: ParameterValue | None, reason: str
) -> None:
    plan = split_values(ParameterValues.of({name: new}), STATE)
    assert plan.live == ()
    (change,) = plan.restart
    assert (change.name, change.old, change.new) == (name, old, new)
    assert change.reason.startswith(reason)


def test_a_live_value_that_the_set_does_not_name_returns_to_the_engines_start() -> None:
    plan = split_values(ParameterValues.of({"max_num_seqs": 64}), STATE)
    assert plan.returned == (ValueChange(name="max_num_batched_tokens", old=2048, new=8192),)
    assert plan.moved == ParameterValues.of({"max_num_batched_tokens": 8192})
    assert (plan.live, plan.unchanged) == ((), ("max_num_seqs",))

    at_start = replace(STATE, in_force=STATE.envelope, asked=STATE.envelope)
    plan = split_values(ParameterValues(), at_start)
    assert plan.moved == ParameterValues()


def test_a_value_that_still_drains_to_another_is_not_taken_as_it_stands() -> None:
    # 64 run, 2 were asked for: to stay at 64 is a change, and so is the way back to the start.
    asked = ParameterValues.of({"max_num_seqs": 2, "max_num_batched_tokens": 2048})
    draining = replace(STATE, asked=asked)
    plan = split_values(ParameterValues.of({"max_num_seqs": 64}), draining)
    assert plan.live == (ValueChange(name="max_num_seqs", old=64, new=64),)
    started = replace(draining, in_force=STATE.envelope)
    (returned,) = split_values(
        ParameterValues.of({"max_num_batched_tokens": 8192}), started
    ).returned
    assert (returned.name, returned.new) == ("max_num_seqs", 256)


def test_a_parameter_is_live_only_on_the_versions_that_were_tried() -> None:
    seqs, length = row("max_num_seqs"), row("max_model_len")
    assert [change_in(seqs, v) for v in ("0.24.0", "0.32.0", "0.32.0+cpu")] == [Change.LIVE] * 3
    assert [change_in(seqs, v) for v in ("0.25.0", "0.32.1")] == [Change.RESTART] * 2
    assert change_in(length, "0.32.0") is Change.RESTART
