"""The engine that is installed, as its own argument list describes it, and version arithmetic."""

import re
from dataclasses import dataclass

from tasks.domain.hardware import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgument:
    """One argument of the installed engine; texts are as its own parser prints them."""

    name: str
    type: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledEngine:
    """Version, build and every argument that the engine's own parser takes, sorted by name.

    arguments is empty where nobody could ask the parser, as of an endpoint that is only attached
    to; then the catalogue's span of releases decides what exists.
    """

    version: str
    flavour: Flavour
    arguments: tuple[EngineArgument, ...]

    def argument(self, name: str) -> EngineArgument | None:
        """Return the argument of this name, or None where the engine has none."""
        return next((a for a in self.arguments if a.name == name), None)


def version_key(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version, for comparing: 0.24.0+cu130 is (0, 24, 0)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None:
        return ()
    numbers = [int(part) for part in match.group(1).split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


def at_least(version: str, minimum: str) -> bool:
    """Tell whether a version is this release or a later one."""
    return version_key(version) >= version_key(minimum)
