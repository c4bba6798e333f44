"""The engine's log as a file that grows: read what is new, or the parts that tell a failure."""

from pathlib import Path

from tasks.domain.engine_log import LogLine, log_lines, tells_progress
from tasks.domain.engine_log_phases import phase_of

HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20


class LogFollower:
    """Reads a growing log line by line and remembers the phase that it tells."""

    def __init__(self, path: Path) -> None:
        """Start at the file's beginning; the file may not exist yet."""
        self._path = path
        self._offset = 0
        self._rest = b""
        self.telling_lines = 0
        self.phase: str | None = None
        self.last_line = ""

    def new_phases(self) -> tuple[str, ...]:
        """Read what was written since the last call; return the phases entered, in order."""
        entered: list[str] = []
        for line in self._new_lines():
            if line.text.strip():
                self.last_line = line.text.strip()
            if tells_progress(line):
                self.telling_lines += 1
            name = phase_of(line)
            if name is not None and name != self.phase:
                self.phase = name
                entered.append(name)
        return tuple(entered)

    def _new_lines(self) -> tuple[LogLine, ...]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._offset)
                data = handle.read()
        except FileNotFoundError:
            return ()
        self._offset += len(data)
        whole, _, self._rest = (self._rest + data).replace(b"\r", b"\n").rpartition(b"\n")
        return tuple(log_lines(whole.decode("utf-8", errors="replace")))


def log_text(path: Path) -> str:
    """Return the log; of a huge one the first MiB and the last four."""
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            if size <= HEAD_BYTES + TAIL_BYTES:
                return handle.read().decode("utf-8", errors="replace")
            head = handle.read(HEAD_BYTES)
            handle.seek(size - TAIL_BYTES)
            tail = handle.read()
    except FileNotFoundError:
        return ""
    return head.decode("utf-8", errors="replace") + "\n" + tail.decode("utf-8", errors="replace")
