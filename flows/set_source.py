"""Reads a parameter set from its file or from the registry: ``registry:NAME@ALIAS``."""

from dataclasses import dataclass
from pathlib import Path

from flows.environment import Home
from flows.publishing import registry_of
from tasks import publish
from tasks.adapters.config_files.parameter_set_file import load_parameter_set
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet
from tasks.domain.set_registry import REGISTRY

CHAMPION = "champion"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSource:
    """A parameter set and the text that it was read from."""

    parameter_set: ParameterSet
    text: str


def read_source(source: str, place: Home) -> SetSource:
    """Return the set that a path or ``registry:NAME@ALIAS`` names (``champion`` by default).

    Raises:
        ConfigError: there is no such file or version, or it is not a parameter set.
        StorageError: PARAMETER_SET_ALTERED. TrackerUnavailableError: the store cannot be read.
    """
    if not source.startswith(REGISTRY):
        path = Path(source)
        return SetSource(parameter_set=load_parameter_set(path), text=path.read_text("utf-8"))
    name, separator, alias = source.removeprefix(REGISTRY).partition("@")
    if not name or (separator and not alias):
        raise ConfigError(
            f"{source!r} names no registered set; write {REGISTRY}NAME@{CHAMPION}, for example "
            f"{REGISTRY}llama-3-8b.peak@{CHAMPION}"
        )
    found = publish.read_set(name, alias=alias or CHAMPION, registry=registry_of(place))
    return SetSource(parameter_set=found.parameter_set, text=found.text)
