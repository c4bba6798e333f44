"""Rows of a JSON-lines block: as columns at once, or line by line where a row is odd."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault
from tasks.adapters.trace_files.layouts import Layout, StampKind
from tasks.adapters.trace_files.line_blocks import LineBlock
from tasks.adapters.trace_files.row_block import RowBlock, Stamps, row_block
from tasks.adapters.trace_files.stamps import number_stamps, text_stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonShape:
    """The rows as sniffed: their layout, the kind of stamps and which optional fields exist."""

    layout: Layout
    stamp_kind: StampKind
    has_blocks: bool
    has_session: bool
    block_tokens: int | None


@dataclass(slots=True, kw_only=True)
class _Columns:
    lines: list[int]
    stamp: list[object]
    prompt: list[float]
    output: list[float]
    faults: list[int]
    blocks: list[tuple[int, ...]]
    session: list[str]


def jsonl_rows(block: LineBlock, shape: JsonShape) -> RowBlock | None:
    """Return the rows of a block of JSON objects, or None if they cannot be parsed at once.

    That is so for a broken, blank or NaN-holding line and where a field is missing.
    """
    try:
        table = pa_json.read_json(
            pa.BufferReader(block.data),
            read_options=pa_json.ReadOptions(block_size=len(block.data) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=_schema(shape), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    odd = table.num_rows != block.data.count(b"\n") or any(
        column.null_count for column in table.columns
    )
    return None if odd else _from_table(block, shape, table)


def _schema(shape: JsonShape) -> pa.Schema:
    layout = shape.layout
    stamp = pa.string() if shape.stamp_kind == "iso" else pa.float64()
    fields = [(layout.stamp, stamp), (layout.prompt, pa.int64()), (layout.output, pa.int64())]
    if shape.has_blocks and layout.blocks is not None:
        fields.append((layout.blocks, pa.list_(pa.int64())))
    if shape.has_session and layout.session is not None:
        fields.append((layout.session, pa.string()))
    return pa.schema(fields)


def _from_table(block: LineBlock, shape: JsonShape, table: pa.Table) -> RowBlock:
    layout, rows = shape.layout, table.num_rows
    column = table[layout.stamp].combine_chunks()
    if shape.stamp_kind == "iso":
        stamps = text_stamps(pc.utf8_trim_whitespace(column), "iso")
    else:
        stamps = number_stamps(column.to_numpy(), np.ones(rows, dtype=np.bool_))
    return row_block(
        lines=np.arange(block.first_line, block.first_line + rows, dtype=np.int64),
        stamps=stamps,
        prompt=table[layout.prompt].to_numpy().astype(np.float64),
        output=table[layout.output].to_numpy().astype(np.float64),
        faults=np.zeros(rows, dtype=np.uint8),
        blocks=(
            [tuple(ids) for ids in table[layout.blocks].to_pylist()] if shape.has_blocks else None
        ),
        session=table[layout.session].to_pylist() if shape.has_session else None,
    )


def jsonl_rows_line_by_line(block: LineBlock, shape: JsonShape) -> RowBlock:
    """Return the rows of a block, a line that is no request as a fault."""
    rows = _Columns(lines=[], stamp=[], prompt=[], output=[], faults=[], blocks=[], session=[])
    layout = shape.layout
    for number, line in enumerate(block.lines, start=block.first_line):
        if not line.strip():
            continue
        record, fault = _object(line)
        blocks = _block_ids(record.get(layout.blocks)) if layout.blocks else ()
        if blocks is None:
            fault = fault or Fault.BLOCKS
        rows.lines.append(number)
        rows.stamp.append(record.get(layout.stamp))
        rows.prompt.append(_number(record.get(layout.prompt)))
        rows.output.append(_number(record.get(layout.output)))
        rows.faults.append(fault)
        rows.blocks.append(blocks or ())
        rows.session.append(str(record.get(layout.session or "") or ""))
    return row_block(
        lines=np.array(rows.lines, dtype=np.int64),
        stamps=_stamps(rows.stamp, shape.stamp_kind),
        prompt=np.array(rows.prompt, dtype=np.float64),
        output=np.array(rows.output, dtype=np.float64),
        faults=np.array(rows.faults, dtype=np.uint8),
        blocks=rows.blocks if shape.has_blocks else None,
        session=rows.session if shape.has_session else None,
    )


def _object(line: str) -> tuple[dict[str, object], Fault]:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return {}, Fault.JSON
    return (record, Fault.NONE) if isinstance(record, dict) else ({}, Fault.JSON)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _block_ids(value: object) -> tuple[int, ...] | None:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(block) is int for block in value):
        return None
    return tuple(value)


def _stamps(values: list[object], kind: StampKind) -> Stamps:
    if kind == "iso":
        texts = [value.strip() if isinstance(value, str) else "" for value in values]
        stamps = text_stamps(pa.array(texts, pa.string()), "iso")
    else:
        numbers: NDArray[np.float64] = np.array([_number(v) for v in values], dtype=np.float64)
        readable = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
        stamps = number_stamps(numbers, np.array(readable, dtype=np.bool_))
    stamps.faults[[value is None for value in values]] = Fault.STAMP_MISSING
    return stamps
