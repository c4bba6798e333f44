"""httpx over our own connections: the same bytes and stamps as the load, behind httpx's API.

Goes straight to the server; proxies are httpx's own transports' business and would falsify times.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx

from tasks.adapters.load_client.connection import Headers, HttpConnection
from tasks.adapters.load_client.pool import ConnectionPool, Origin

DEFAULT_LIMIT = 4096
# These describe one connection, not the message; our writer sets its own.
HOP_HEADERS = (b"connection", b"transfer-encoding", b"content-length")


class StampingTransport(httpx.AsyncBaseTransport):
    """Sends httpx requests; a response's extensions hold ``sent_ns`` and ``first_byte_ns``.

    ``arrivals_ns`` in the extensions is a list that grows by one perf_counter_ns a body chunk.
    """

    def __init__(self, *, connection_limit: int = DEFAULT_LIMIT) -> None:
        self._limit = connection_limit
        self._pools: dict[tuple[str, str, int], ConnectionPool] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response as soon as its headers are here.

        Raises:
            httpx.TransportError: ConnectError, ReadTimeout, RemoteProtocolError and their kin.
        """
        body = await request.aread()
        timeouts = request.extensions.get("timeout", {})
        pool = self._pool(request.url)
        for reuse in (True, False):
            connection = pool.take() if reuse else None
            kept = connection is not None
            if connection is None:
                connection = await _opened(pool, timeouts.get("connect"), request)
            sink = _Response(connection, timeouts.get("read"), request)
            sent_ns = connection.send(_rendered(request, body), sink)
            try:
                await sink.started()
            except httpx.RemoteProtocolError:
                # A kept-alive connection that the server closed while this was on its way.
                if kept and sink.unanswered:
                    continue
                raise
            return httpx.Response(
                sink.status,
                headers=sink.headers,
                stream=sink,
                extensions={
                    "http_version": b"HTTP/1.1",
                    "sent_ns": sent_ns,
                    "first_byte_ns": sink.first_byte_ns,
                    "arrivals_ns": sink.arrivals_ns,
                },
            )
        raise httpx.RemoteProtocolError("the server closed two connections unanswered")

    async def aclose(self) -> None:
        """Drop every connection."""
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    def _pool(self, url: httpx.URL) -> ConnectionPool:
        origin = Origin.of(f"{url.scheme}://{url.netloc.decode('ascii')}")
        key = (origin.scheme, origin.host, origin.port)
        if key not in self._pools:
            self._pools[key] = ConnectionPool(origin, limit=self._limit)
        return self._pools[key]


class _Response(httpx.AsyncByteStream):
    """Takes one response from a connection and gives it to httpx as an async stream."""

    def __init__(
        self, connection: HttpConnection, read_timeout_s: float | None, request: httpx.Request
    ) -> None:
        self._connection: HttpConnection | None = connection
        self._read_timeout_s = read_timeout_s
        self._request = request
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._started = asyncio.Event()
        self._lost: str | None = None
        self.status = 0
        self.headers: Headers = []
        self.first_byte_ns: int | None = None
        self.unanswered = False
        self.arrivals_ns: list[int] = []

    async def started(self) -> None:
        """Wait for status and headers."""
        try:
            async with asyncio.timeout(self._read_timeout_s):
                await self._started.wait()
        except TimeoutError as error:
            await self.aclose()
            raise httpx.ReadTimeout(self._waited(), request=self._request) from error
        if self.status == 0:
            raise httpx.RemoteProtocolError(self._lost or "no answer", request=self._request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body's chunks as they come."""
        while True:
            try:
                async with asyncio.timeout(self._read_timeout_s):
                    data = await self._events.get()
            except TimeoutError as error:
                raise httpx.ReadTimeout(self._waited(), request=self._request) from error
            if data is not None:
                yield data
            elif self._lost is not None:
                raise httpx.ReadError(self._lost, request=self._request)
            else:
                return

    async def aclose(self) -> None:
        """Drop the connection where the body was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def response_started(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers."""
        self.status, self.headers, self.first_byte_ns = status, headers, at_ns
        self._started.set()

    def body_received(self, data: bytes, at_ns: int) -> None:
        """Take a piece of the body."""
        self.arrivals_ns.append(at_ns)
        self._events.put_nowait(data)

    def response_ended(self, at_ns: int) -> None:
        """Take the clean end of the body."""
        self._connection = None
        self._events.put_nowait(None)

    def response_lost(self, reason: str, *, unanswered: bool) -> None:
        """Take the loss of the connection."""
        self._connection = None
        self._lost, self.unanswered = reason, unanswered
        self._started.set()
        self._events.put_nowait(None)

    def _waited(self) -> str:
        return f"nothing was received for {self._read_timeout_s:g} s"


async def _opened(
    pool: ConnectionPool, timeout_s: float | None, request: httpx.Request
) -> HttpConnection:
    try:
        async with asyncio.timeout(timeout_s):
            return await pool.open()
    except TimeoutError as error:
        raise httpx.ConnectTimeout("no connection in time", request=request) from error
    except OSError as error:
        raise httpx.ConnectError(f"{type(error).__name__}: {error}", request=request) from error


def _rendered(request: httpx.Request, body: bytes) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [
        b"%s: %s" % (name, value)
        for name, value in request.headers.raw
        if name.lower() not in HOP_HEADERS
    ]
    if body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
