"""Reads and writes the YAML of one parameter set; what is written is read back equal."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Literal

import yaml

from tasks.adapters.config_files.reading import StrictModel, parse_model, read_model
from tasks.adapters.config_files.study_schema import EngineValue, Name, Number, RegimeName
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import (
    ParameterSet,
    ParameterValue,
    ParameterValues,
    Provenance,
    Regime,
    SetState,
)

_HEADER = """\
# Written by vllm-retune. To put it in force: `retune sets promote` its registered version, or copy
# it over the set that configs/nightly.yaml names, with the MLflow runs that earned it.
"""


class ProvenancePart(StrictModel):
    """Where a parameter set comes from; a missing key was not measured."""

    study: str | None = None
    study_id: str | None = None
    mlflow_run_ids: list[str] = []
    trace_sha256: str | None = None
    trace_part: str | None = None
    checkpoint_sha256: str | None = None
    engine: str | None = None
    flavour: Literal["cpu", "cuda"] | None = None
    hardware: str | None = None
    device_count: int | None = None
    driver: str | None = None
    engine_values: dict[str, EngineValue] = {}
    cpu_kv_cache_gib: Number | None = None
    measured_on: str | None = None
    expires_on: str | None = None
    slo: dict[str, Number] = {}
    slo_values: dict[str, Number] = {}
    synthetic: bool = False


class ParameterSetFile(StrictModel):
    """A parameter set for one regime."""

    name: Name
    regime: RegimeName
    state: Literal["baseline", "candidate", "champion"]
    model: Name
    checkpoint: Literal["reference", "awq"]
    values: dict[str, EngineValue]
    provenance: ProvenancePart = ProvenancePart()
    note: str = ""


def load_parameter_set(path: Path) -> ParameterSet:
    """Return a parameter set with its provenance.

    Raises:
        ConfigError: names the file, the key, the value and what is allowed.
    """
    return _set_of(str(path), read_model(path, ParameterSetFile))


def parse_parameter_set(text: str, *, source: str) -> ParameterSet:
    """Return the set of a YAML text; ``source`` is what errors name.

    Raises:
        ConfigError: names the source, the key, the value and what is allowed.
    """
    return _set_of(source, parse_model(text, ParameterSetFile, source=source))


def parameter_set_yaml(parameter_set: ParameterSet) -> str:
    """Return the set as YAML text; what was not measured is left out."""
    provenance = {
        field.name: _plain(getattr(parameter_set.provenance, field.name))
        for field in fields(Provenance)
    }
    document = {
        "name": parameter_set.name,
        "regime": parameter_set.regime.value,
        "state": parameter_set.state.value,
        "model": parameter_set.model,
        "checkpoint": parameter_set.checkpoint,
        "values": parameter_set.values.as_dict(),
        "provenance": {k: v for k, v in provenance.items() if v not in (None, [], {}, False)},
        "note": parameter_set.note,
    }
    return _HEADER + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def engine_values(
    source: Path | str, key: str, values: Mapping[str, ParameterValue]
) -> ParameterValues:
    """Return the values of a file's key.

    Raises:
        ConfigError: a name is not spelt as vLLM spells it.
    """
    for name in values:
        if not name.isidentifier() or name != name.lower():
            raise ConfigError(
                f"{source}: {key}: {name!r} is not an engine parameter's name; write vLLM's name "
                "with lower case and underscores, for example max_num_seqs"
            )
    return ParameterValues.of(values)


def _set_of(source: str, file: ParameterSetFile) -> ParameterSet:
    origin = file.provenance
    started_with = engine_values(source, "provenance.engine_values", origin.engine_values)
    plain = origin.model_dump(exclude={"mlflow_run_ids", "engine_values", "slo", "slo_values"})
    return ParameterSet(
        name=file.name,
        regime=Regime(file.regime),
        state=SetState(file.state),
        model=file.model,
        checkpoint=file.checkpoint,
        values=engine_values(source, "values", file.values),
        provenance=Provenance(
            mlflow_run_ids=tuple(origin.mlflow_run_ids),
            engine_values=started_with,
            slo=tuple(sorted(origin.slo.items())),
            slo_values=tuple(sorted(origin.slo_values.items())),
            **plain,
        ),
        note=file.note,
    )


def _plain(value: object) -> object:
    """Return a provenance value as YAML holds it: pairs as a mapping, other tuples as a list."""
    if isinstance(value, ParameterValues):
        return value.as_dict()
    if isinstance(value, tuple):
        return dict(value) if value and isinstance(value[0], tuple) else list(value)
    return value
