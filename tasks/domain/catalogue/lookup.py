"""Find catalogue rows, and narrow them to what the installed engine has."""

from collections.abc import Iterable

from tasks.domain.catalogue import memory_rows, model_rows, scheduler_rows
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.row import Row
from tasks.domain.errors import ConfigError

_ROWS: tuple[Row, ...] = scheduler_rows.ROWS + memory_rows.ROWS + model_rows.ROWS
_BY_NAME = {row.name: row for row in _ROWS}


def rows() -> tuple[Row, ...]:
    """Return every row, grouped by theme."""
    return _ROWS


def guide_rows() -> tuple[Row, ...]:
    """Return the guide's eight parameters."""
    return tuple(row for row in _ROWS if row.in_guide)


def find(name: str) -> Row | None:
    """Return the row of this name, or None."""
    return _BY_NAME.get(name)


def row(name: str) -> Row:
    """Return the row of this name.

    Raises:
        ConfigError: when the catalogue has none.
    """
    found = find(name)
    if found is None:
        raise ConfigError(
            f"the catalogue has no parameter {name!r}; it has "
            + ", ".join(sorted(_BY_NAME))
            + "; correct the spelling or add a row",
            code="UNKNOWN_PARAMETER",
        )
    return found


def absence(name: str, installed: InstalledEngine) -> str:
    """Return one sentence on why the installed engine lacks a parameter and what comes nearest."""
    known = find(name)
    text = f"vLLM {installed.version} has no argument {name}"
    if known is None:
        return f"{text}; drop it or correct the spelling"
    if known.removed is not None:
        text += f": it was removed in {known.removed}"
    elif known.added is not None and not known.exists_in(installed.version):
        text += f": it came in {known.added}"
    if known.guide_note:
        text += f"; {known.guide_note}"
    if known.nearest:
        text += f"; the nearest is --{known.nearest.replace('_', '-')}"
    return f"{text}; drop it from the space"


def has_argument(name: str, installed: InstalledEngine) -> bool:
    """Tell whether the engine takes this argument.

    Its own list decides; without a list, the span of releases of the catalogue's row.
    """
    if installed.arguments:
        return installed.argument(name) is not None
    known = find(name)
    return known is not None and known.exists_in(installed.version)


def for_engine(
    candidates: Iterable[Row], installed: InstalledEngine
) -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    """Return (rows the engine has, (name, sentence) of each that it has not).

    The engine's own argument list decides; the catalogue's versions only explain.
    """
    kept: list[Row] = []
    dropped: list[tuple[str, str]] = []
    for candidate in candidates:
        if has_argument(candidate.name, installed):
            kept.append(candidate)
        else:
            dropped.append((candidate.name, absence(candidate.name, installed)))
    return tuple(kept), tuple(dropped)
