"""``retune sets``: registered parameter sets, the one in force, promotion and rollback."""

import datetime as dt

import typer

from flows.environment import home
from flows.output import print_json, print_lines, print_table
from flows.publishing import registry_of
from tasks import publish
from tasks.domain.parameters import ParameterSet
from tasks.domain.set_registry import ChampionMove, SetVersion

COLUMNS = ("version", "aliases", "state", "study", "engine", "hardware", "measured", "expires",
           "sha256")  # fmt: skip


def list_command(name: str, *, as_json: bool) -> int:
    """Print every registered version of ``<model>.<regime>``."""
    versions = publish.list_sets(name, registry=registry_of(home()))
    if as_json:
        print_json({"name": name, "versions": [_document(version) for version in versions]})
    else:
        print_table(name, COLUMNS, (_row(version) for version in versions))
    return 0


def show_command(name: str, *, alias: str | None, version: str | None, as_json: bool) -> int:
    """Print one version as it was registered; its SHA-256 is checked."""
    registry = registry_of(home())
    found = publish.read_set(name, alias=alias, version=version, registry=registry)
    if as_json:
        listed = next(
            item for item in publish.list_sets(name, registry=registry)
            if item.version == found.version
        )  # fmt: skip
        print_json({"name": name, **_document(listed), "set": found.parameter_set})
    else:
        typer.echo(found.text, nl=not found.text.endswith("\n"))
    return 0


def promote_command(name: str, version: str, *, as_json: bool) -> int:
    """Put a version in force and say which was before."""
    registry = registry_of(home())
    found = publish.read_set(name, version=version, registry=registry)
    for doubt in _doubts(found.parameter_set):
        typer.echo(f"warning: {doubt}", err=True)
    _tell(publish.promote_set(name, version, registry=registry), as_json=as_json)
    return 0


def rollback_command(name: str, *, to: str | None, as_json: bool) -> int:
    """Put the champion before in force again, or a chosen version."""
    _tell(publish.roll_back_set(name, to=to, registry=registry_of(home())), as_json=as_json)
    return 0


def _tell(move: ChampionMove, *, as_json: bool) -> None:
    if as_json:
        print_json(move)
        return
    before = "none" if move.before is None else f"version {move.before}"
    print_lines([f"{move.name}: champion is version {move.champion}, before: {before}"])


def _doubts(parameter_set: ParameterSet) -> list[str]:
    origin = parameter_set.provenance
    doubts: list[str] = []
    today = dt.datetime.now(dt.UTC).date().isoformat()
    if origin.expires_on is not None and origin.expires_on < today:
        doubts.append(f"this set expired on {origin.expires_on}; run its study again")
    if origin.synthetic:
        doubts.append("this set was measured on dummy weights: its accuracy is unknown")
    return doubts


def _document(version: SetVersion) -> dict[str, object]:
    return {
        "version": version.version,
        "aliases": list(version.aliases),
        "sha256": version.sha256,
        "tags": dict(version.tags),
    }


def _row(version: SetVersion) -> tuple[str, ...]:
    named = ("state", "study_id", "engine", "hardware", "measured_on", "expires_on")
    return (
        version.version,
        ", ".join(version.aliases) or "-",
        *(version.tag(name) or "-" for name in named),
        (version.sha256 or "-")[:12],
    )
