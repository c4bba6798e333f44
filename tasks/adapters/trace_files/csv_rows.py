"""Rows of a CSV block: as columns at once, or line by line where a row is broken."""

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


def csv_rows(block: LineBlock, shape: CsvShape) -> RowBlock | None:
    """Return the rows of a block without header, or None if its columns cannot be parsed at once.

    That is so for a wrong number of fields, a blank line or bytes that are not UTF-8.
    """
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
        return None
    if table.num_rows != rows:  # a blank line or a quoted line end
        return None
    columns = {
        name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in table.column_names
    }
    lines = np.arange(block.first_line, block.first_line + rows, dtype=np.int64)
    return _rows(columns, lines, np.zeros(rows, dtype=np.uint8), shape)


def csv_rows_line_by_line(block: LineBlock, shape: CsvShape) -> RowBlock:
    """Return the rows of a block, a row of the wrong shape as a fault."""
    wanted = _wanted(shape)
    places = [shape.columns.index(name) for name in wanted]
    texts: list[list[str]] = [[] for _ in wanted]
    lines: list[int] = []
    faults: list[int] = []
    for number, line in enumerate(block.lines, start=block.first_line):
        if not line.strip():
            continue
        fields = _fields(line.rstrip("\r"), shape.delimiter)
        complete = len(fields) == len(shape.columns)
        lines.append(number)
        faults.append(Fault.NONE if complete else Fault.FIELDS)
        for column, place in zip(texts, places, strict=True):
            column.append(fields[place].strip() if complete else "")
    columns = {
        name: pa.array(column, pa.string()) for name, column in zip(wanted, texts, strict=True)
    }
    return _rows(columns, np.array(lines, dtype=np.int64), np.array(faults, dtype=np.uint8), shape)


def _rows(
    columns: dict[str, pa.Array],
    lines: NDArray[np.int64],
    faults: NDArray[np.uint8],
    shape: CsvShape,
) -> RowBlock:
    layout = shape.layout
    prompt, _ = numbers_from_text(columns[layout.prompt])
    output, _ = numbers_from_text(columns[layout.output])
    session = None
    if shape.has_session and layout.session is not None:
        session = columns[layout.session].to_pylist()
    return row_block(
        lines=lines,
        stamps=text_stamps(columns[layout.stamp], shape.stamp_kind),
        prompt=prompt,
        output=output,
        faults=faults,
        session=session,
    )


def _fields(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)  # the csv module costs five times as much for one line
    return next(csv.reader([line], delimiter=delimiter), [])


def _wanted(shape: CsvShape) -> list[str]:
    layout = shape.layout
    names = [layout.stamp, layout.prompt, layout.output]
    if shape.has_session and layout.session is not None:
        names.append(layout.session)
    return names
