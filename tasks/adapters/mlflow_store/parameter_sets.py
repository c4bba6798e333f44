"""Parameter sets as versions of a registered model; a rollback moves an alias.

The version's file is an artifact of a run, its SHA-256 a tag: what is read is what was registered.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tasks.adapters.mlflow_store.library import open_store
from tasks.adapters.mlflow_store.ports import KEY_TAG, StoredVersion, TrackingStore
from tasks.domain.errors import ConfigError, StorageError

Alias = Literal["candidate", "champion"]
CARRIER_EXPERIMENT = "vllm/parameter_sets"
SHA256_TAG = "sha256"
FILE_TAG = "file"


def register_parameter_set(
    yaml_path: Path,
    *,
    name: str,
    tags: Mapping[str, str],
    alias: Alias | None,
    tracking_uri: str,
) -> str:
    """Register a parameter set's YAML, let the alias point at it, return its version number.

    A YAML of the same bytes keeps its version, so that registering again adds nothing and puts
    back a file that was altered in the store. An alias moves to later versions only: registering
    an old study once more takes nothing from a newer one.

    Raises:
        ConfigError: PARAMETER_SET_NAME for a name that MLflow cannot hold.
        TrackerUnavailableError: the store cannot be written.
    """
    check_name(name)
    return register_in(
        open_store(tracking_uri), yaml_path.read_bytes(), yaml_path.name, name, tags, alias
    )


def register_in(
    store: TrackingStore,
    content: bytes,
    file_name: str,
    name: str,
    tags: Mapping[str, str],
    alias: Alias | None,
) -> str:
    """Register bytes in an open store; see ``register_parameter_set``."""
    digest = hashlib.sha256(content).hexdigest()
    store.ensure_model(name)
    known = [item for item in store.versions(name) if item.tags.get(SHA256_TAG) == digest]
    if known:
        version = known[-1]
        store.upload_bytes(version.run_id, content, version.tags[FILE_TAG])
        store.set_version_tags(name, version.version, tags)
    else:
        run_id = _carrier_run(store, f"{name} {digest[:12]}", f"{name} {digest}")
        folder = f"parameter_sets/{digest[:12]}"
        store.upload_bytes(run_id, content, f"{folder}/{file_name}")
        store.end_run(run_id, "FINISHED", None)
        own = {SHA256_TAG: digest, FILE_TAG: f"{folder}/{file_name}"}
        version = store.create_version(name, run_id=run_id, folder=folder, tags={**tags, **own})
    if alias is not None:
        pointed = store.version_of(name, alias)
        if pointed is None or int(pointed.version) < int(version.version):
            store.set_alias(name, alias, version.version)
    return version.version


def resolve_parameter_set(name: str, alias: Alias, *, tracking_uri: str) -> tuple[str, str]:
    """Return the version and the YAML text that an alias points at.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN if nothing has this alias.
        StorageError: PARAMETER_SET_ALTERED if the file is not the one that was registered.
        TrackerUnavailableError: the store cannot be read.
    """
    check_name(name)
    return resolve_in(open_store(tracking_uri), name, alias)


def resolve_in(store: TrackingStore, name: str, alias: Alias) -> tuple[str, str]:
    """Resolve an alias in an open store; see ``resolve_parameter_set``."""
    version = store.version_of(name, alias)
    if version is None:
        raise ConfigError(
            f"parameter set {name!r} has no version with alias {alias!r}; "
            "register one or let the alias point at a version",
            code="PARAMETER_SET_UNKNOWN",
        )
    return version.version, verified_text(store, name, version)


def verified_text(store: TrackingStore, name: str, version: StoredVersion) -> str:
    """Return a version's YAML text.

    Raises:
        StorageError: PARAMETER_SET_ALTERED if the file is not the one that was registered.
        TrackerUnavailableError: the file is gone or the store cannot be read.
    """
    content = store.read_bytes(version.run_id, version.tags.get(FILE_TAG, ""))
    seen, needed = hashlib.sha256(content).hexdigest(), version.tags.get(SHA256_TAG)
    if seen != needed:
        raise StorageError(
            f"parameter set {name!r} version {version.version} has sha256={seen}, but "
            f"sha256={needed} was registered: its file was altered; register the right file "
            "again or use another version",
            code="PARAMETER_SET_ALTERED",
        )
    return content.decode()


def point_alias(name: str, alias: Alias, version: str, *, tracking_uri: str) -> None:
    """Let an alias point at an existing version: the rollback.

    Raises:
        TrackerUnavailableError: TRACKER_REFUSED if there is no such version.
    """
    check_name(name)
    open_store(tracking_uri).set_alias(name, alias, version)


def _carrier_run(store: TrackingStore, run_name: str, key: str) -> str:
    """Return the run that carries a set's file, also after a crash before it was registered."""
    experiment_id = store.ensure_experiment(CARRIER_EXPERIMENT)
    found = store.find_runs(experiment_id, f"tags.`{KEY_TAG}` = '{key}'")
    if found:
        return found[0].run_id
    return store.create_run(experiment_id, run_name, None, {KEY_TAG: key}).run_id


def check_name(name: str) -> None:
    """Raise where MLflow's registry cannot hold the name.

    Raises:
        ConfigError: PARAMETER_SET_NAME.
    """
    if not name.strip() or set(name) & set("/:'\"`\\") or name.strip(".") == "":
        raise ConfigError(
            f"parameter set name {name!r} is not one that MLflow's registry holds; letters, "
            "digits, '.', '-' and '_' are safe, for example llama-3-8b.peak",
            code="PARAMETER_SET_NAME",
        )
