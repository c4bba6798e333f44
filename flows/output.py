"""Prints results: JSON for programs, tables and sentences for people; standard output only."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from tasks.domain.codec import as_json

PAGE_WIDTH = 180  # of a table that goes to a file or a pipe, where nothing tells a width


def print_json(value: object) -> None:
    """Print a record, or a mapping of plain values, as one JSON document."""
    Console(soft_wrap=True).print_json(json.dumps(_plain(value), allow_nan=False), highlight=False)


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences, one a line, as they are."""
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of texts; None must have been written as ``-`` by the caller."""
    table = Table(title=title, title_justify="left", show_lines=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PAGE_WIDTH)
    console.print(table, markup=False)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """Return a number as a person reads it, ``-`` where nothing was measured."""
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return as_json(value)
