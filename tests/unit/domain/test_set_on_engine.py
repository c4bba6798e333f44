"""What a running engine tells of itself against a set's model, checkpoint and measured engine."""

from dataclasses import replace

import pytest

from tasks.domain.errors import ConfigError
from tasks.domain.live_values import EngineState
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValue,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)
from tasks.domain.set_on_engine import (
    Difference,
    ServedWeights,
    assigned_values,
    differences,
    refuse_differences,
)

LIVE = ParameterValues.of({"max_num_seqs": 64, "max_num_batched_tokens": 2048})
SERVED = ServedWeights(names=("llama", "chat"), root="/m", max_model_len=4096, sha256="aa")


def engine(**started_with: ParameterValue) -> EngineState:
    values: dict[str, ParameterValue] = {"dtype": "bfloat16", "max_model_len": 4096, **started_with}
    return EngineState(
        change_id=0,
        in_force=LIVE,
        asked=LIVE,
        envelope=LIVE,
        started_with=ParameterValues.of(values),
        version="0.24.0",
        model="llama",
        pid=1,
    )


def a_set(
    *, checkpoint: str = "reference", sha256: str | None = "aa", **measured: ParameterValue
) -> ParameterSet:
    return ParameterSet(
        name="peak",
        regime=Regime.PEAK,
        state=SetState.CANDIDATE,
        model="chat",
        checkpoint=checkpoint,
        values=ParameterValues.of({"block_size": 16}),
        provenance=Provenance(checkpoint_sha256=sha256, engine_values=ParameterValues.of(measured)),
    )


def test_the_engine_that_the_set_was_measured_on_differs_in_nothing() -> None:
    measured = a_set(max_model_len=4096, dtype="bfloat16", block_size=16, no_such_value=1)
    assert differences(measured, engine(block_size=32), SERVED) == ()


def test_every_field_that_differs_is_named_with_both_values() -> None:
    measured = a_set(sha256="bb", max_model_len=1024, dtype="auto", kv_cache_dtype="fp8")
    served = replace(SERVED, names=("other", "another"), max_model_len=2048)
    assert differences(measured, engine(kv_cache_dtype="auto"), served) == (
        Difference(field="model", found="other", needed="chat"),
        Difference(field="checkpoint_sha256", found="aa", needed="bb"),
        Difference(field="kv_cache_dtype", found="auto", needed="fp8"),
        Difference(field="max_model_len", found="2048", needed="1024"),
    )


@pytest.mark.parametrize(
    ("checkpoint", "quantization", "needed"),
    [
        ("reference", None, None),
        ("reference", "fp8", None),
        ("reference", "compressed-tensors", "none"),
        ("awq", "compressed-tensors", None),
        ("awq", "awq_marlin", None),
        ("awq", None, "awq or awq_marlin or compressed-tensors"),
    ],
)
def test_without_a_hash_the_kind_of_the_weights_is_held(
    checkpoint: str, quantization: str | None, needed: str | None
) -> None:
    told = {} if quantization is None else {"quantization": quantization}
    unread = replace(SERVED, sha256=None)
    found = differences(a_set(checkpoint=checkpoint), engine(**told), unread)
    assert [d.needed for d in found] == ([] if needed is None else [needed])
    # The hash decides where it is known: AWQ weights served dequantized are the set's own.
    assert differences(a_set(checkpoint=checkpoint), engine(**told), SERVED) == ()


def test_a_set_assigns_the_live_values_that_its_engine_was_measured_with() -> None:
    measured = a_set(max_num_seqs=32, max_model_len=1024)
    assert assigned_values(measured) == ParameterValues.of({"block_size": 16, "max_num_seqs": 32})
    own = replace(measured, values=ParameterValues.of({"max_num_seqs": 8}))
    assert assigned_values(own) == ParameterValues.of({"max_num_seqs": 8})


def test_one_error_tells_all_and_what_goes_on() -> None:
    found = (
        Difference(field="model", found="other", needed="chat"),
        Difference(field="max_model_len", found="2048", needed="1024"),
    )
    asked = {"parameter_set": a_set(), "url": "http://e"}
    with pytest.raises(ConfigError) as caught:
        refuse_differences(found, **asked)  # type: ignore[arg-type]
    assert caught.value.code == "ENGINE_OTHERWISE"
    assert "model: found other, needed chat; max_model_len: found 2048, needed 1024" in str(
        caught.value
    )
    assert str(caught.value).endswith("--accept model=other --accept max_model_len=2048")
    # What was accepted is that value alone.
    for accepted in (("model=other",), ("model=else", "max_model_len=2048")):
        with pytest.raises(ConfigError):
            refuse_differences(found, accepted=accepted, **asked)  # type: ignore[arg-type]
    refuse_differences(found, accepted=("model=other", "max_model_len=2048"), **asked)  # type: ignore[arg-type]
