"""The arms of a study file: one each, and one a cell where a searched arm has cells."""

import re
from itertools import product
from pathlib import Path

from tasks.adapters.config_files.parameter_set_file import engine_values
from tasks.adapters.config_files.study_schema import ArmPart, EngineValue, StudyFile
from tasks.domain.errors import ConfigError
from tasks.domain.live_values import LIVE_NAMES
from tasks.domain.study_request import Arm

LONGEST_NAME = 63
Cells = dict[str, list[EngineValue]]


def study_arms(path: Path, file: StudyFile) -> tuple[Arm, ...]:
    """Return the file's arms in order; a searched arm becomes one arm for each of its cells.

    Raises:
        ConfigError: names the key, the value and what is allowed.
    """
    cells = {} if file.search is None else file.search.cells
    _check_cells(path, cells)
    arms: list[Arm] = []
    for i, part in enumerate(file.arms):
        arms += _arms_of(path, f"arms.{i}.values", part, cells if part.search else {})
    names = [arm.name for arm in arms]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"{path}: search.cells: arms {twice} would have the same name; rename an arm, or "
            "shorten the cells' values"
        )
    return tuple(arms)


def _arms_of(path: Path, where: str, part: ArmPart, cells: Cells) -> list[Arm]:
    found = []
    for values in product(*cells.values()):
        cell = dict(zip(cells, values, strict=True))
        found.append(
            Arm(
                name=_name(part.name, cell),
                method=part.checkpoint,
                values=engine_values(path, where, {**part.values, **cell}),
                is_reference=part.reference,
                searched=part.search,
                cell_of=part.name if cell else "",
            )
        )
    return found


def _name(arm: str, cell: dict[str, EngineValue]) -> str:
    parts = [arm, *(f"{name}-{str(value).lower()}" for name, value in cell.items())]
    return re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))[:LONGEST_NAME]


def _check_cells(path: Path, cells: Cells) -> None:
    for name, values in cells.items():
        if name in LIVE_NAMES:
            raise ConfigError(
                f"{path}: search.cells.{name}: {values}: this value moves without a restart; give "
                f"it under search.levels, cells are for those that need one"
            )
        if not values or len(set(map(repr, values))) < len(values):
            raise ConfigError(
                f"{path}: search.cells.{name}: {values}: needed one or more values, each once"
            )
