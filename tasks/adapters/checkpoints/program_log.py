"""Reads the log of a quantizer program: its progress lines, and why it failed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tasks.adapters.checkpoints.records import Progress

MARK = "RETUNE "
_ERROR_LINE = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b.*")
_DISK_FULL = ("No space left on device", "Disk quota exceeded", "(os error 28)")
_TAIL_BYTES = 64_000


class ProgressReader:
    """Follows a growing log and yields each progress line once, complete lines only."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of the file, which need not exist yet."""
        self._path = path
        self._offset = 0
        self._stage = "start"

    def new(self) -> Iterator[Progress]:
        """Yield what was written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            progress = self._parse(line)
            if progress is not None:
                yield progress

    def _parse(self, line: str) -> Progress | None:
        event = event_of(line)
        if event is None:
            return None
        name, done, total = event.get("name"), event.get("done"), event.get("of")
        if isinstance(name, str):
            self._stage = name
            return Progress(stage=name)
        if isinstance(done, int) and isinstance(total, int):
            return Progress(stage=self._stage, done=done, of=total)
        return None


def event_of(line: str) -> dict[str, object] | None:
    """Return the JSON object of a progress line, None for any other line."""
    _, mark, text = line.rpartition(MARK)
    if not mark or not text.startswith("{"):
        return None
    try:
        event = json.loads(text)
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


def final_event(path: Path) -> dict[str, object]:
    """Return the program's ``done`` event, empty where it never got there."""
    for line in reversed(_tail(path)):
        event = event_of(line)
        if event is not None and event.get("event") == "done":
            return event
    return {}


def root_cause(path: Path) -> str:
    """Return the line that says best why a program failed.

    The first exception of the last traceback chain is the cause, later ones follow from it; a
    program that ended with a sentence of its own has no traceback, and its last line is it.
    """
    lines = [line.strip() for line in _tail(path) if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    if errors:
        return errors[0]
    return lines[-1] if lines else "the program wrote nothing"


def disk_was_full(path: Path) -> bool:
    """Whether the log says that a write failed for want of space."""
    return any(sign in line for line in _tail(path) for sign in _DISK_FULL)


def _tail(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - _TAIL_BYTES))
        text = log.read().decode("utf-8", errors="replace")
    return text.replace("\r", "\n").split("\n")
