"""The publishing verbs: a parameter set as a file, as registered versions, and the one in force.

The registry's adapter is imported when it is used, because mlflow takes seconds to import.
"""

from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.config_files.parameter_set_file import parameter_set_yaml, parse_parameter_set
from tasks.adapters.evidence_store import write_whole
from tasks.domain.parameters import ParameterSet, SetState
from tasks.domain.set_registry import ChampionMove, SetVersion, registered_name, version_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A tracking store's registry, and the folder of the locks of those that write to it."""

    tracking_uri: str
    lock_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSet:
    """A version as it was read: its text has the SHA-256 that it was registered with."""

    name: str
    version: str
    text: str
    parameter_set: ParameterSet


def publish_parameter_set(parameter_set: ParameterSet, path: Path) -> Path:
    """Write the set as YAML and return its path.

    Raises:
        StorageError: if it cannot be written.
    """
    write_whole(path, parameter_set_yaml(parameter_set))
    return path


def register_set(path: Path, parameter_set: ParameterSet, *, registry: Registry) -> SetVersion:
    """Register the written file as a version of ``<model>.<regime>``; equal bytes stay one version.

    A candidate gets the alias ``candidate``; a baseline claims nothing and moves no alias.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED, PARAMETER_SET_NAME.
        TrackerUnavailableError: the store cannot be written.
    """
    from tasks.adapters.mlflow_store.champions import list_versions, writing_to
    from tasks.adapters.mlflow_store.parameter_sets import check_name, register_in

    name = registered_name(parameter_set.model, parameter_set.regime)
    check_name(name)
    with writing_to(registry.tracking_uri, registry.lock_dir) as store:
        version = register_in(
            store,
            path.read_bytes(),
            path.name,
            name,
            version_tags(parameter_set),
            None if parameter_set.state is SetState.BASELINE else "candidate",
        )
        return next(item for item in list_versions(store, name) if item.version == version)


def list_sets(name: str, *, registry: Registry) -> tuple[SetVersion, ...]:
    """Return the registered versions of ``<model>.<regime>``, oldest first.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN. TrackerUnavailableError: the store cannot be read.
    """
    from tasks.adapters.mlflow_store.champions import list_versions
    from tasks.adapters.mlflow_store.library import open_store

    return list_versions(open_store(registry.tracking_uri), name)


def read_set(
    name: str, *, alias: str | None = None, version: str | None = None, registry: Registry
) -> RegisteredSet:
    """Return a version by its number or an alias (``champion`` where neither is named).

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN; or the text is not a parameter set.
        StorageError: PARAMETER_SET_ALTERED. TrackerUnavailableError: the store cannot be read.
    """
    from tasks.adapters.mlflow_store.champions import read_version
    from tasks.adapters.mlflow_store.library import open_store

    store = open_store(registry.tracking_uri)
    number, text = read_version(store, name, alias=alias, version=version)
    found = parse_parameter_set(text, source=f"{name} version {number}")
    return RegisteredSet(name=name, version=number, text=text, parameter_set=found)


def promote_set(name: str, version: str, *, registry: Registry) -> ChampionMove:
    """Put a version in force: the alias ``champion`` points at it.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN. StorageError: PARAMETER_SET_ALTERED.
        TrackerUnavailableError: the store cannot be written.
    """
    from tasks.adapters.mlflow_store.champions import promote_version, writing_to

    with writing_to(registry.tracking_uri, registry.lock_dir) as store:
        return promote_version(store, name, version)


def roll_back_set(name: str, *, to: str | None = None, registry: Registry) -> ChampionMove:
    """Put the champion before in force again, or a chosen version.

    Raises:
        ConfigError: NO_CHAMPION_BEFORE, PARAMETER_SET_UNKNOWN. StorageError: PARAMETER_SET_ALTERED.
        TrackerUnavailableError: the store cannot be written.
    """
    from tasks.adapters.mlflow_store.champions import roll_back, writing_to

    with writing_to(registry.tracking_uri, registry.lock_dir) as store:
        return roll_back(store, name, to)
