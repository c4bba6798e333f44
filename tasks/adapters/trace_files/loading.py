"""Load a trace file or folder of any known format into a Trace."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.assemble import SourceFile, assemble
from tasks.adapters.trace_files.clock import read_clock
from tasks.adapters.trace_files.csv_rows import CsvShape, csv_rows, csv_rows_line_by_line
from tasks.adapters.trace_files.jsonl_rows import JsonShape, jsonl_rows, jsonl_rows_line_by_line
from tasks.adapters.trace_files.layouts import Layout
from tasks.adapters.trace_files.line_blocks import LineBlock, LineReader
from tasks.adapters.trace_files.options import TimeUnit, TraceOptions
from tasks.adapters.trace_files.row_block import RowBlock, Stamps
from tasks.adapters.trace_files.servegen import is_servegen, load_servegen
from tasks.adapters.trace_files.server_log import load_server_log
from tasks.adapters.trace_files.sniff import LogShape, sniff
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace

T = TypeVar("T")

DEFAULT_OPTIONS = TraceOptions()
BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 1024)
BLOCKS_SAMPLE = 2_000
DEFAULT_BLOCK_TOKENS = 512
CORNERED_LINES = 200


def load_trace(path: Path, *, options: TraceOptions = DEFAULT_OPTIONS) -> Trace:
    """Return the trace in a file or ServeGen folder, its format recognised by content.

    What was refused, dropped, sorted, assumed or spread stands in ``notes``.

    Raises:
        TraceError: if the path is absent, of no known format, or has too many bad rows.
    """
    if not path.exists():
        raise TraceError(f"trace {path} does not exist; needed a file or folder; check the path")
    if path.is_dir():
        if is_servegen(path):
            return load_servegen(path, options)
        raise TraceError(
            f"trace folder {path} holds no chunk-*-trace.csv with its chunk-*-dataset.json; "
            f"needed a ServeGen folder or a single file; name the file itself"
        )
    shape = sniff(path)
    if isinstance(shape, LogShape):
        return load_server_log(path, options)
    reader = LineReader(path)
    rows = _joined(list(_row_blocks(reader, shape)))
    told = shape.block_tokens if isinstance(shape, JsonShape) else None
    block_tokens = told or _block_tokens(rows)
    name, unit = _name_and_unit(shape.layout, rows, block_tokens, options)
    clock = read_clock(rows.stamps, rows.faults, unit=unit, options=options)
    source = SourceFile(
        path=path,
        format=name,
        sha256=reader.sha256,
        block_tokens=block_tokens or DEFAULT_BLOCK_TOKENS,
    )
    return assemble(rows, clock, source, options)


def _row_blocks(reader: LineReader, shape: CsvShape | JsonShape) -> Iterator[RowBlock]:
    header = isinstance(shape, CsvShape)
    for block in reader.blocks():
        yield from _parsed(_without_header(block) if header else block, shape)
        header = False


def _parsed(block: LineBlock, shape: CsvShape | JsonShape) -> Iterator[RowBlock]:
    """Yield the block's rows; a broken row is cornered by halving, the rest stays fast."""
    rows = csv_rows(block, shape) if isinstance(shape, CsvShape) else jsonl_rows(block, shape)
    if rows is not None:
        yield rows
    elif block.data.count(b"\n") > CORNERED_LINES:
        for half in block.halves():
            yield from _parsed(half, shape)
    elif isinstance(shape, CsvShape):
        yield csv_rows_line_by_line(block, shape)
    else:
        yield jsonl_rows_line_by_line(block, shape)


def _without_header(block: LineBlock) -> LineBlock:
    data, skipped = block.data, 0
    while True:
        line, _, data = data.partition(b"\n")
        skipped += 1
        if line.strip():
            return LineBlock(first_line=block.first_line + skipped, data=data)


def _joined(blocks: list[RowBlock]) -> RowBlock:
    """Join the blocks' columns one after another, so that no two copies of all exist at once."""
    head = blocks[0].stamps
    return RowBlock(
        lines=np.concatenate([block.lines for block in blocks]),
        stamps=Stamps(
            faults=np.zeros(0, dtype=np.uint8),  # merged into the rows' faults already
            number=None
            if head.number is None
            else np.concatenate([b.stamps.number for b in blocks if b.stamps.number is not None]),
            ns=None
            if head.ns is None
            else np.concatenate([b.stamps.ns for b in blocks if b.stamps.ns is not None]),
            zoned=None
            if head.zoned is None
            else np.concatenate([b.stamps.zoned for b in blocks if b.stamps.zoned is not None]),
        ),
        prompt=np.concatenate([block.prompt for block in blocks]),
        output=np.concatenate([block.output for block in blocks]),
        faults=np.concatenate([block.faults for block in blocks]),
        blocks=_chained(blocks, lambda block: block.blocks),
        session=_chained(blocks, lambda block: block.session),
    )


def _chained(
    blocks: list[RowBlock], column: Callable[[RowBlock], list[T] | None]
) -> list[T] | None:
    parts = [part for block in blocks if (part := column(block)) is not None]
    return [value for part in parts for value in part] if parts else None


def _block_tokens(rows: RowBlock) -> int | None:
    """Return the tokens of a prefix block: the size under which ceil(prompt / size) = blocks."""
    if rows.blocks is None:
        return None
    counts: NDArray[np.int64] = np.array([len(b) for b in rows.blocks[:BLOCKS_SAMPLE]])
    prompts = rows.prompt[: counts.size]
    told = (rows.faults[: counts.size] == 0) & (counts > 0)
    if not told.any():
        return None
    fits = [float(np.mean(-(-prompts[told] // size) == counts[told])) for size in BLOCK_SIZES]
    best = int(np.argmax(fits))
    return BLOCK_SIZES[best] if fits[best] >= 0.9 else None


def _name_and_unit(
    layout: Layout, rows: RowBlock, block_tokens: int | None, options: TraceOptions
) -> tuple[str, TimeUnit]:
    if layout.name != "timed-trace-jsonl":
        named: TimeUnit = layout.unit
        return layout.name, named if options.time_unit == "auto" else options.time_unit
    numbers = rows.stamps.number
    whole = numbers is not None and bool(np.all(np.floor(numbers) == numbers))
    if block_tokens == DEFAULT_BLOCK_TOKENS and whole:
        unit: TimeUnit = "ms" if options.time_unit == "auto" else options.time_unit
        return "mooncake-jsonl", unit
    return layout.name, options.time_unit
