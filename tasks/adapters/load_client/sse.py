"""Server-sent events: from bytes cut anywhere to the data of whole events.

Follows the WHATWG event-stream grammar for ``data`` lines, comments and the three line endings;
other fields (event, id, retry) carry nothing that is measured and are dropped.
"""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventFrames:
    """Joins bytes to lines and lines to events; holds what is not complete yet."""

    __slots__ = ("_after_cr", "_data", "_partial", "_started")

    def __init__(self) -> None:
        self._partial = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._started = False

    @property
    def idle(self) -> bool:
        """Tell whether no part of an event is held, so that a whole one may be read alone."""
        return self._started and not self._partial and not self._data and not self._after_cr

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of every event that these bytes complete, without its last newline."""
        if not data:
            return []
        if self._after_cr:
            # A CR ended the line before; a LF that follows belongs to the same ending.
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        buffer = self._partial + data
        if not self._started:
            if len(buffer) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(buffer):
                self._partial = buffer
                return []
            self._started = True
            buffer = buffer.removeprefix(BYTE_ORDER_MARK)
        if b"\r" in buffer:
            self._after_cr = buffer.endswith(b"\r")
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._partial = buffer.split(b"\n")
        return [event for line in lines if (event := self._line(line)) is not None]

    def flush(self) -> list[bytes]:
        """Return the event that a cleanly ended body left without its blank line, if any."""
        line, self._partial = self._partial, b""
        if line:
            self._line(line)
        event = self._line(b"")
        return [] if event is None else [event]

    def _line(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value.removeprefix(b" "))
            return None
        if line or not self._data:
            return None
        event = b"\n".join(self._data)
        self._data.clear()
        return event
