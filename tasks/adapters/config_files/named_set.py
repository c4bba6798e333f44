"""The parameter set that a study or a night names: a file beside it or a registered one."""

from collections.abc import Callable
from pathlib import Path

from tasks.adapters.config_files.parameter_set_file import load_parameter_set
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import ParameterSet
from tasks.domain.set_registry import REGISTRY

Registered = Callable[[str], ParameterSet]
"""Reads ``registry:NAME@ALIAS``; files know no tracking store."""


def named_set(
    path: Path, key: str, named: str, *, registered: Registered, model: str, regime: str
) -> ParameterSet:
    """Return the set that a key of a file names, for the file's model and regime.

    Raises:
        ConfigError: names the file, the key, the value and what is allowed.
    """
    if named.startswith(REGISTRY):
        found = registered(named)
    else:
        found = load_parameter_set((path.parent / named).resolve())
    for name, has, wants in (
        ("model", found.model, model),
        ("regime", found.regime.value, regime),
    ):
        if has != wants:
            raise ConfigError(
                f"{path}: {key}: parameter set {found.name!r} is for {name} {has!r}, "
                f"needed {wants!r}; name the right set"
            )
    return found


def unregistered(named: str) -> ParameterSet:
    """Refuse a registered set where no store can be asked.

    Raises:
        ConfigError: always; says what to name instead.
    """
    raise ConfigError(f"{named} cannot be read here, without a tracking store; name a set's file")
