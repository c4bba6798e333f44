"""The publishing verb: write a parameter set where a person finds it."""

from pathlib import Path

from tasks.adapters.config_files.writing import parameter_set_yaml
from tasks.adapters.evidence_store import write_whole
from tasks.domain.parameters import ParameterSet


def publish_parameter_set(parameter_set: ParameterSet, path: Path) -> Path:
    """Write the set as YAML and return its path.

    Raises:
        StorageError: if it cannot be written.
    """
    write_whole(path, parameter_set_yaml(parameter_set))
    return path
