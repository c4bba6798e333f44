"""One HTTP/1.1 connection: bytes out in one write, bytes in stamped as they arrive.

Knows requests and responses as bytes; pooling, retries and meaning belong to its users.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, cast

import httptools

Headers = list[tuple[bytes, bytes]]
FIRST_FINAL_STATUS = 200


class ResponseSink(Protocol):
    """Takes one response as it comes; ``at_ns`` is perf_counter_ns at the bytes' arrival."""

    def response_started(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers; ``at_ns`` is when the first byte of the answer came."""

    def body_received(self, data: bytes, at_ns: int) -> None:
        """Take a piece of the body."""

    def response_ended(self, at_ns: int) -> None:
        """Take the clean end of the body."""

    def response_lost(self, reason: str, *, unanswered: bool) -> None:
        """Take the loss of the connection; unanswered when no byte had come."""


class HttpConnection(asyncio.Protocol):
    """A connection that carries one request at a time.

    ``on_free`` is called when it may carry another, ``on_closed`` when it is gone.
    """

    def __init__(
        self,
        on_free: Callable[["HttpConnection"], None],
        on_closed: Callable[["HttpConnection"], None],
    ) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._on_free = on_free
        self._on_closed = on_closed
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sink: ResponseSink | None = None
        self._headers: Headers = []
        self._status = 0
        self._answered = False
        self._complete = False
        self._keep = False
        self._until_close = False
        self._arrived: list[tuple[int, bytes]] = []
        self._at_ns = 0
        self._first_ns = 0
        self.freed_ns = 0

    @property
    def usable(self) -> bool:
        """Tell whether a request can be written now."""
        return (
            self._transport is not None and self._sink is None and not self._transport.is_closing()
        )

    @property
    def peer(self) -> tuple[str, int] | None:
        """Return the address that is connected to."""
        if self._transport is None:
            return None
        name = self._transport.get_extra_info("peername")
        return (str(name[0]), int(name[1])) if name else None

    def send(self, request: bytes, sink: ResponseSink) -> int:
        """Write a whole request and return perf_counter_ns just before the write."""
        assert self._transport is not None  # usable was asked first
        self._sink = sink
        self._answered = False
        sent_ns = time.perf_counter_ns()
        self._transport.write(request)
        return sent_ns

    def abort(self) -> None:
        """Drop the connection at once; the sink hears nothing more."""
        self._sink = None
        self._arrived.clear()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection when what was written is out."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and its loop; asyncio calls this."""
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        """Stamp arrived bytes; asyncio calls this.

        They are parsed once the loop has read every other socket that is ready, so that one
        stream's parsing does not make the next one's stamp late.
        """
        at_ns = time.perf_counter_ns()
        if self._sink is None:
            self.abort()
            return
        self._arrived.append((at_ns, data))
        if len(self._arrived) == 1:
            self._loop.call_soon(self._parse_arrived)

    def _parse_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for at_ns, data in arrived:
            if self._sink is None:
                self.abort()
                return
            self._parse(at_ns, data)

    def _parse(self, at_ns: int, data: bytes) -> None:
        self._at_ns = at_ns
        if not self._answered:
            self._answered = True
            self._first_ns = at_ns
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._lose(f"no valid HTTP answer: {error.__context__ or error}")
            self.abort()
            return
        if self._complete:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the sink what the end means; asyncio calls this."""
        self._parse_arrived()
        self._on_closed(self)
        if self._sink is None:
            return
        if exc is None and self._until_close and self._status:
            sink, self._sink = self._sink, None
            sink.response_ended(time.perf_counter_ns())
        else:
            self._lose(
                "the server closed the connection"
                if exc is None
                else f"{type(exc).__name__}: {exc}"
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; httptools calls this."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Pass status and headers on; httptools calls this."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if status < FIRST_FINAL_STATUS:
            return
        self._status = status
        names = {name.lower() for name, _ in headers}
        self._until_close = not names & {b"content-length", b"transfer-encoding"}
        if self._sink is not None:
            self._sink.response_started(status, headers, self._first_ns)

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body on; httptools calls this."""
        if self._sink is not None:
            self._sink.body_received(body, self._at_ns)

    def on_message_complete(self) -> None:
        """Note the end of the response; httptools calls this, before feed_data returns."""
        if self._status:
            self._complete = True
            self._keep = self._parser.should_keep_alive()

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        keep, self._complete, self._status = self._keep, False, 0
        self.freed_ns = self._at_ns
        if keep:
            self._on_free(self)
        else:
            self.close()
        if sink is not None:
            sink.response_ended(self._at_ns)

    def _lose(self, reason: str) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.response_lost(reason, unanswered=not self._answered)
