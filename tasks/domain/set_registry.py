"""Registered versions of a parameter set and the order in which they were champion.

The history is a tuple of version numbers, the champion in force last. It is what makes a rollback
one command: the champion before is known, whatever else was registered since.
"""

from dataclasses import dataclass

from tasks.domain.parameters import ParameterSet, Regime

REGISTRY = "registry:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetVersion:
    """One registered version: what points at it, and the tags it was registered with."""

    version: str
    aliases: tuple[str, ...]
    sha256: str | None
    tags: tuple[tuple[str, str], ...]

    def tag(self, name: str) -> str | None:
        """Return a tag's value, None where the version has no such tag."""
        return dict(self.tags).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionMove:
    """The alias ``champion`` went from one version to another; before: None where it was new."""

    name: str
    before: str | None
    champion: str


def registered_name(model: str, regime: Regime) -> str:
    """Return the name that all versions of one model's set for one regime share."""
    return f"{model}.{regime.value}"


def version_tags(parameter_set: ParameterSet) -> dict[str, str]:
    """Return what a registered version can be found by; what was not measured is left out."""
    origin = parameter_set.provenance
    found = {
        "state": parameter_set.state.value,
        "regime": parameter_set.regime.value,
        "checkpoint": parameter_set.checkpoint,
        "study_id": origin.study_id,
        "mlflow_run_ids": " ".join(origin.mlflow_run_ids) or None,
        "trace_sha256": origin.trace_sha256,
        "engine": origin.engine,
        "hardware": origin.hardware,
        "measured_on": origin.measured_on,
        "expires_on": origin.expires_on,
        "synthetic": "true" if origin.synthetic else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def history_with(history: tuple[str, ...], champion: str | None) -> tuple[str, ...]:
    """Return the history that ends with the champion in force, however the alias was moved.

    An alias that was put back to an earlier champion by hand was a rollback; one that was put to a
    version that never was champion was a promotion.
    """
    if champion is None or (history and history[-1] == champion):
        return history if champion is not None else ()
    if champion in history:
        last = len(history) - history[::-1].index(champion)
        return history[:last]
    return (*history, champion)


def rolled_back(history: tuple[str, ...], to: str | None) -> tuple[str, ...] | None:
    """Return the history after a rollback, to the champion before or to a chosen version.

    None where there is no champion before. A chosen version that never was champion is added.
    """
    if to is None:
        return history[:-1] if len(history) > 1 else None
    return history_with(history[:-1], to)
