"""Which version of a parameter set is in force: list, read, promote, roll back.

The alias ``champion`` is the truth; the order of champions is a tag of the registered model, so
that a rollback knows the one before. The alias moves first and the tag follows: a crash between
the two reads like an alias that somebody moved by hand, and is understood as that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.adapters.mlflow_store.file_lock import hold_lock, recording_lock
from tasks.adapters.mlflow_store.library import open_store
from tasks.adapters.mlflow_store.parameter_sets import SHA256_TAG, check_name, verified_text
from tasks.adapters.mlflow_store.ports import StoredModel, StoredVersion, TrackingStore
from tasks.adapters.mlflow_store.store_uri import checked_uri
from tasks.domain.errors import ConfigError
from tasks.domain.set_registry import ChampionMove, SetVersion, history_with, rolled_back

CHAMPION = "champion"
HISTORY_TAG = "retune.champions"


@contextmanager
def writing_to(tracking_uri: str, lock_dir: Path) -> Iterator[TrackingStore]:
    """Open the store as the one process that writes to it.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED.
        TrackerUnavailableError: the store cannot be opened, or another process holds it.
    """
    address = checked_uri(tracking_uri)
    with hold_lock(recording_lock(lock_dir, address)):
        yield open_store(address)


def list_versions(store: TrackingStore, name: str) -> tuple[SetVersion, ...]:
    """Return every version of a set, oldest first.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN where nothing of this name is registered.
    """
    model = _model(store, name)
    return tuple(
        SetVersion(
            version=item.version,
            aliases=tuple(sorted(a for a, v in model.aliases.items() if v == item.version)),
            sha256=item.tags.get(SHA256_TAG),
            tags=tuple(sorted(item.tags.items())),
        )
        for item in store.versions(name)
    )


def read_version(
    store: TrackingStore, name: str, *, alias: str | None = None, version: str | None = None
) -> tuple[str, str]:
    """Return the number and the YAML text of the version that is named or that an alias points at.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN if there is no such version.
        StorageError: PARAMETER_SET_ALTERED if the file is not the one that was registered.
    """
    model = _model(store, name)
    number = model.aliases.get(alias or CHAMPION) if version is None else version
    if number is None:
        known = ", ".join(f"{a} (version {v})" for a, v in sorted(model.aliases.items())) or "none"
        raise ConfigError(
            f"parameter set {name!r} has no version with alias {alias or CHAMPION!r}; its aliases: "
            f"{known}; `retune sets promote {name} VERSION` puts one in force",
            code="PARAMETER_SET_UNKNOWN",
        )
    return number, verified_text(store, name, _version(store, name, number))


def promote_version(store: TrackingStore, name: str, version: str) -> ChampionMove:
    """Let ``champion`` point at a version whose file is the one that was registered.

    Raises:
        ConfigError: PARAMETER_SET_UNKNOWN if there is no such version.
        StorageError: PARAMETER_SET_ALTERED.
    """
    model = _model(store, name)
    verified_text(store, name, _version(store, name, version))
    before = model.aliases.get(CHAMPION)
    history = history_with(_history(model), before)
    if version != before:
        _move(store, name, version, (*history, version))
    return ChampionMove(name=name, before=before, champion=version)


def roll_back(store: TrackingStore, name: str, to: str | None = None) -> ChampionMove:
    """Let ``champion`` point at the champion before the one in force, or at a chosen version.

    Raises:
        ConfigError: NO_CHAMPION_BEFORE where there is none; PARAMETER_SET_UNKNOWN if there is no
            such version.
        StorageError: PARAMETER_SET_ALTERED.
    """
    model = _model(store, name)
    before = model.aliases.get(CHAMPION)
    present = {item.version for item in store.versions(name)}
    history = tuple(v for v in history_with(_history(model), before) if v in present)
    if to is not None and to == before:
        return ChampionMove(name=name, before=before, champion=to)
    after = rolled_back(history, to)
    if after is None:
        champion = "no champion" if before is None else f"version {before} as its only champion yet"
        raise ConfigError(
            f"parameter set {name!r} has {champion}, so there is none to go back to; name a "
            f"version with --to ({', '.join(sorted(present, key=int))} are registered)",
            code="NO_CHAMPION_BEFORE",
        )
    verified_text(store, name, _version(store, name, after[-1]))
    _move(store, name, after[-1], after)
    return ChampionMove(name=name, before=before, champion=after[-1])


def _move(store: TrackingStore, name: str, version: str, history: tuple[str, ...]) -> None:
    store.set_alias(name, CHAMPION, version)
    store.set_model_tag(name, HISTORY_TAG, " ".join(history))


def _history(model: StoredModel) -> tuple[str, ...]:
    return tuple(model.tags.get(HISTORY_TAG, "").split())


def _model(store: TrackingStore, name: str) -> StoredModel:
    check_name(name)
    model = store.find_model(name)
    if model is None:
        raise ConfigError(
            f"no parameter set {name!r} is registered; a study registers <model>.<regime> at its "
            "end, `retune record FOLDER` does it later",
            code="PARAMETER_SET_UNKNOWN",
        )
    return model


def _version(store: TrackingStore, name: str, number: str) -> StoredVersion:
    known = {item.version: item for item in store.versions(name)}
    if number not in known:
        raise ConfigError(
            f"parameter set {name!r} has no version {number!r}; it has {', '.join(known)}",
            code="PARAMETER_SET_UNKNOWN",
        )
    return known[number]
