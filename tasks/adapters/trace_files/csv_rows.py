"""Rows of a CSV block: parsed as columns at once; line by line only where a row is broken."""

import csv
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault
from tasks.adapters.trace_files.layouts import Layout, StampKind
from tasks.adapters.trace_files.line_blocks import LineBlock
from tasks.adapters.trace_files.row_block import RowBlock, row_block
from tasks.adapters.trace_files.stamps import numbers_from_text, text_stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvShape:
    """The header as sniffed: column names in lower case, delimiter and the kind of stamps."""

    layout: Layout
    columns: tuple[str, ...]
    delimiter: str
    stamp_kind: StampKind

    @property
    def has_session(self) -> bool:
        """Return whether the file has the layout's session column."""
        return self.layout.session in self.columns


def csv_rows(block: LineBlock, shape: CsvShape) -> RowBlock:
    """Return the rows of a block that does not hold the header."""
    table, lines, faults = _columns(block, shape)
    layout = shape.layout
    prompt, _ = numbers_from_text(table[layout.prompt])
    output, _ = numbers_from_text(table[layout.output])
    session = None
    if shape.has_session and layout.session is not None:
        session = table[layout.session].to_pylist()
    return row_block(
        lines=lines,
        stamps=text_stamps(table[layout.stamp], shape.stamp_kind),
        prompt=prompt,
        output=output,
        faults=faults,
        session=session,
    )


def _columns(
    block: LineBlock, shape: CsvShape
) -> tuple[dict[str, pa.Array], NDArray[np.int64], NDArray[np.uint8]]:
    wanted = _wanted(shape)
    rows = block.data.count(b"\n")
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=pa_csv.ReadOptions(column_names=list(shape.columns)),
            parse_options=pa_csv.ParseOptions(delimiter=shape.delimiter),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return _columns_line_by_line(block, shape, wanted)
    if table.num_rows != rows:  # a blank line or a quoted line end
        return _columns_line_by_line(block, shape, wanted)
    columns = {
        name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in table.column_names
    }
    lines = np.arange(block.first_line, block.first_line + rows, dtype=np.int64)
    return columns, lines, np.zeros(rows, dtype=np.uint8)


def _columns_line_by_line(
    block: LineBlock, shape: CsvShape, wanted: list[str]
) -> tuple[dict[str, pa.Array], NDArray[np.int64], NDArray[np.uint8]]:
    places = [shape.columns.index(name) for name in wanted]
    texts: list[list[str]] = [[] for _ in wanted]
    lines: list[int] = []
    faults: list[int] = []
    for number, line in enumerate(block.lines, start=block.first_line):
        if not line.strip():
            continue
        fields = next(csv.reader([line.rstrip("\r")], delimiter=shape.delimiter), [])
        complete = len(fields) == len(shape.columns)
        lines.append(number)
        faults.append(Fault.NONE if complete else Fault.FIELDS)
        for column, place in zip(texts, places, strict=True):
            column.append(fields[place].strip() if complete else "")
    columns = {
        name: pa.array(column, pa.string()) for name, column in zip(wanted, texts, strict=True)
    }
    return columns, np.array(lines, dtype=np.int64), np.array(faults, dtype=np.uint8)


def _wanted(shape: CsvShape) -> list[str]:
    layout = shape.layout
    names = [layout.stamp, layout.prompt, layout.output]
    if shape.has_session and layout.session is not None:
        names.append(layout.session)
    return names
