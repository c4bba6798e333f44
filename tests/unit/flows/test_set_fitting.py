"""A set earned on another engine version is carried or refused with the reason."""

import pytest

from flows.progress import Reporter
from flows.set_fitting import fitted_set
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)

HERE = "0.32.0"


def earned_on(version: str | None, **values: int) -> ParameterSet:
    return ParameterSet(
        name="peak",
        regime=Regime.PEAK,
        state=SetState.CANDIDATE,
        model="m",
        checkpoint="reference",
        values=ParameterValues.of(values),
        provenance=Provenance(engine=version),
    )


def test_a_set_of_the_installed_version_or_of_none_is_taken_as_it_is() -> None:
    for version in ("0.32.0", None):
        found = earned_on(version, max_num_seqs=64)
        assert fitted_set(found, HERE, Reporter(quiet=True)) == found


def test_a_value_that_did_nothing_is_dropped_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = fitted_set(earned_on("0.17.1", swap_space=0, max_num_seqs=64), HERE, Reporter())
    assert fitted.values.get("swap_space") is None
    assert fitted.values.get("max_num_seqs") == 64
    assert "swap_space" in capsys.readouterr().err


def test_a_value_that_cannot_be_said_any_more_refuses_the_set_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="swap_space=16 cannot be said") as error:
        fitted_set(earned_on("0.17.1", swap_space=16), HERE, Reporter(quiet=True))
    assert error.value.code == "SET_OF_OTHER_ENGINE"
