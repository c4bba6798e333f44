"""Writes a parameter set as the YAML that ``load_parameter_set`` reads."""

import yaml

from tasks.domain.parameters import ParameterSet

_HEADER = """\
# Written by vllm-retune. To put it in force: copy it over the set that configs/nightly.yaml names,
# review the change and commit it with the MLflow run that earned it.
"""


def parameter_set_yaml(parameter_set: ParameterSet) -> str:
    """Return the set as YAML text; what was not measured is left out."""
    origin = parameter_set.provenance
    provenance: dict[str, object] = {
        "study_id": origin.study_id,
        "mlflow_run_ids": list(origin.mlflow_run_ids),
        "trace_sha256": origin.trace_sha256,
        "engine": origin.engine,
        "hardware": origin.hardware,
        "measured_on": origin.measured_on,
        "expires_on": origin.expires_on,
        "slo_values": dict(origin.slo_values),
    }
    document = {
        "name": parameter_set.name,
        "regime": parameter_set.regime.value,
        "state": parameter_set.state.value,
        "model": parameter_set.model,
        "checkpoint": parameter_set.checkpoint,
        "values": parameter_set.values.as_dict(),
        "provenance": {key: value for key, value in provenance.items() if value not in (None, [])},
        "note": parameter_set.note,
    }
    return _HEADER + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
