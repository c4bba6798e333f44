"""Reads a measured table (gzip JSON, every request kept), strictly: a doubtful row is an error."""

import gzip
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tasks.domain.errors import ConfigError
from tasks.domain.search.observation import RequestRows
from tasks.domain.search.replay import MeasuredTable, TablePoint
from tasks.domain.search.step_model import Floats, OfferedLoad

SCHEMA = 1
_NEEDED = ("due_s", "prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s")
_MAY_BE_NULL = ("ttft_s", "tpot_s", "e2e_s")


def load_measured_table(path: Path) -> MeasuredTable:
    """Return the table of a ``.json.gz`` file.

    Raises:
        ConfigError: names the file, the place in it, the value and what is needed.
    """
    document = _document(path)
    if document.get("schema") != SCHEMA:
        raise _fault(path, "schema", document.get("schema"), str(SCHEMA))
    rate = _number(path, "rate_req_s", document.get("rate_req_s"))
    columns = document.get("columns")
    if not isinstance(columns, list) or not set(_NEEDED) <= set(columns):
        raise _fault(path, "columns", columns, f"a list with {', '.join(_NEEDED)}")
    points = document.get("points")
    if not isinstance(points, list) or not points:
        raise _fault(path, "points", points, "a list of at least one point")
    read = [_point(path, i, point, columns, rate) for i, point in enumerate(points)]
    start = document.get("engine_start_s")
    return MeasuredTable(
        name=path.name,
        points=tuple(sorted(read, key=lambda p: p.order)),
        engine_start_s=None if start is None else _number(path, "engine_start_s", start),
        kv_tokens=None
        if document.get("kv_tokens") is None
        else _count(path, "kv_tokens", document["kv_tokens"]),
    )


def _document(path: Path) -> dict[str, object]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read as gzip JSON ({error}); give a measured table (.json.gz)"
        ) from error
    if not isinstance(document, dict):
        raise _fault(path, "the document", type(document).__name__, "an object")
    return document


def _point(path: Path, i: int, point: object, columns: list[str], rate: float) -> TablePoint:
    where = f"points[{i}]"
    if not isinstance(point, Mapping):
        raise _fault(path, where, point, "an object")
    rows = point.get("rows")
    if not isinstance(rows, list) or not rows:
        raise _fault(path, f"{where}.rows", rows, "a list of at least one request")
    for k, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(columns):
            raise _fault(path, f"{where}.rows[{k}]", row, f"{len(columns)} values")
    order = point.get("order")
    if isinstance(order, bool) or not isinstance(order, int):
        raise _fault(path, f"{where}.order", order, "a whole number")
    return TablePoint(
        max_num_seqs=_count(path, f"{where}.max_num_seqs", point.get("max_num_seqs")),
        max_num_batched_tokens=_count(
            path, f"{where}.max_num_batched_tokens", point.get("max_num_batched_tokens")
        ),
        order=order,
        wall_s=_number(path, f"{where}.wall_s", point.get("wall_s")),
        rows=_rows(path, where, rows, columns, rate),
    )


def _rows(
    path: Path, where: str, rows: list[list[object]], columns: list[str], rate: float
) -> RequestRows:
    got = {name: _column(path, where, rows, columns.index(name), name) for name in _NEEDED}
    if (np.diff(got["due_s"]) < 0).any():
        raise _fault(path, f"{where}.rows", "due_s falls", "rows sorted by due_s")
    for name in ("prompt_tokens", "output_tokens"):
        if (got[name] < 1).any() or (got[name] % 1 != 0).any():
            raise _fault(path, f"{where}.rows", f"a {name} of {got[name].min()}", "counts >= 1")
    return RequestRows(
        load=OfferedLoad(
            due_s=got["due_s"],
            prompt_tokens=got["prompt_tokens"].astype(np.int64),
            output_tokens=got["output_tokens"].astype(np.int64),
        ),
        ttft_s=got["ttft_s"],
        tpot_s=got["tpot_s"],
        e2e_s=got["e2e_s"],
        duration_s=len(rows) / rate,
    )


def _column(path: Path, where: str, rows: list[list[object]], j: int, name: str) -> Floats:
    values: list[float] = []
    for k, row in enumerate(rows):
        value = row[j]
        if value is None and name in _MAY_BE_NULL:
            values.append(math.nan)
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise _fault(path, f"{where}.rows[{k}].{name}", value, "a number of at least 0")
        else:
            values.append(float(value))
    return np.array(values, dtype=np.float64)


def _number(path: Path, where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _fault(path, where, value, "a number above 0")
    return float(value)


def _count(path: Path, where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _fault(path, where, value, "a whole number of at least 1")
    return value


def _fault(path: Path, where: str, value: object, needed: str) -> ConfigError:
    seen = repr(value)
    short = seen if len(seen) <= 80 else f"{seen[:77]}..."
    return ConfigError(f"{path}: {where} is {short}; needed {needed}; correct the table")
