"""Recognise a trace file by its content: the header or first objects, never the file's name."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.trace_files.csv_rows import CsvShape
from tasks.adapters.trace_files.jsonl_rows import JsonShape
from tasks.adapters.trace_files.layouts import Layout, StampKind, known_formats, layout_for
from tasks.adapters.trace_files.line_blocks import LineReader
from tasks.adapters.trace_files.servegen import is_servegen
from tasks.adapters.trace_files.server_log import is_server_log
from tasks.adapters.trace_files.stamps import ISO
from tasks.domain.errors import TraceError

SAMPLE_LINES = 400
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShape:
    """A server's log: its lines are no rows, requests are gathered from several."""


def sniff(path: Path) -> CsvShape | JsonShape | LogShape:
    """Return the shape of a trace file's rows from its first lines.

    Raises:
        TraceError: if the file is empty or of no known format.
    """
    filled: list[str] = []
    for block in LineReader(path).blocks():
        filled += [line.strip("\r") for line in block.lines if line.strip()]
        if len(filled) >= SAMPLE_LINES:
            break
    filled = filled[:SAMPLE_LINES]
    if not filled:
        raise TraceError(
            f"trace file {path} holds no line; needed one request a line; "
            f"check that the export finished"
        )
    # A broken first line must not hide the format: one object among the first lines tells.
    objects = any(line.lstrip().startswith("{") for line in filled)
    shape = (_json_shape(filled) if objects else None) or _csv_shape(filled)
    if shape is None and is_server_log(filled):
        return LogShape()
    if shape is None:
        raise TraceError(_unknown(path, filled[0]), code="UNKNOWN_TRACE_FORMAT")
    return shape


def _csv_shape(lines: list[str]) -> CsvShape | None:
    for delimiter in DELIMITERS:
        header = next(csv.reader([lines[0]], delimiter=delimiter), [])
        columns = tuple(field.strip().lower() for field in header)
        layout = layout_for(columns, "csv")
        if layout is None or len(set(columns)) != len(columns):
            continue
        place = columns.index(layout.stamp)
        rows = csv.reader(lines[1:], delimiter=delimiter)
        stamps = [row[place].strip() for row in rows if len(row) == len(columns)]
        return CsvShape(
            layout=layout, columns=columns, delimiter=delimiter, stamp_kind=_kind(stamps)
        )
    return None


def _json_shape(lines: list[str]) -> JsonShape | None:
    records: list[dict[str, object]] = []
    for line in lines:
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    layout = _first_layout(records)
    if layout is None:
        return None
    stamps = [value for r in records if isinstance(value := r.get(layout.stamp), str)]
    return JsonShape(
        layout=layout,
        stamp_kind=_kind(stamps) if stamps else "number",
        has_blocks=any(r.get(layout.blocks) is not None for r in records if layout.blocks),
        has_session=any(r.get(layout.session) is not None for r in records if layout.session),
        block_tokens=_told_block_tokens(layout, records),
    )


def _first_layout(records: list[dict[str, object]]) -> Layout | None:
    found = (layout_for(tuple(record), "jsonl") for record in records)
    return next((layout for layout in found if layout is not None), None)


def _told_block_tokens(layout: Layout, records: list[dict[str, object]]) -> int | None:
    if layout.block_tokens is None:
        return None
    told = (record.get(layout.block_tokens) for record in records)
    return next((size for size in told if type(size) is int and size > 0), None)


def _kind(stamps: list[str]) -> StampKind:
    iso = sum(re.match(ISO, stamp) is not None for stamp in stamps)
    return "iso" if 2 * iso > len(stamps) else "number"


def _unknown(path: Path, first: str) -> str:
    seen = first.strip()[:120]
    if is_servegen(path.parent):
        return (
            f"trace file {path} (first line {seen!r}) is a part of the ServeGen folder "
            f"{path.parent}; name the folder itself, with the window to draw"
        )
    if first.lstrip().startswith("["):
        return (
            f"trace file {path} is one JSON array; needed one JSON object a line; "
            f"convert it with: jq -c '.[]'"
        )
    return (
        f"trace file {path} starts with {seen!r}, which is no known trace format; "
        f"known are {known_formats()}; rename the columns to one of these"
    )
