"""Keep-alive connections to one origin, without a cap of our own but the descriptor limit.

Keeps one spare connection open ahead of need, so that a send pays for no handshake.
"""

import asyncio
import errno
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from tasks.adapters.load_client.connection import HttpConnection
from tasks.domain.errors import ConfigError

# uvicorn, and so vLLM, closes an idle connection after 5 s; older ones are not worth the race.
IDLE_LIMIT_NS = 4_000_000_000
CONNECT_TIMEOUT_S = 20.0
LIMIT_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port of a server, and the path that its API hangs under."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Return the origin of a base URL.

        Raises:
            ConfigError: for a URL that is not http(s)://host[:port][/path].
        """
        parts = urlsplit(url)
        try:
            port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        except ValueError as error:
            raise ConfigError(f"endpoint url {url!r} has no valid port: {error}") from error
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ConfigError(f"endpoint url {url!r} must look like http://host:port")
        return cls(scheme=parts.scheme, host=parts.hostname, port=port, path=parts.path.rstrip("/"))

    @property
    def host_header(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class ClientLimitError(OSError):
    """A limit of this client's host, not of the server, stopped a connection."""


class ConnectionPool:
    """Connections to one origin; ``limit`` is how many descriptors they may take."""

    def __init__(self, origin: Origin, *, limit: int, spare: bool = False) -> None:
        self._origin = origin
        self._limit = limit
        self._spare = spare
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._opening: set[asyncio.Task[HttpConnection]] = set()
        self._pending = 0
        self._address: tuple[str, int] | None = None
        self._ssl = ssl.create_default_context() if origin.scheme == "https" else None
        self.peak_open = 0

    def take(self) -> HttpConnection | None:
        """Return the idle connection that was used last, or None when there is none."""
        fresh_ns = time.perf_counter_ns() - IDLE_LIMIT_NS
        found = None
        while self._idle and found is None:
            connection = self._idle.pop()
            if connection.usable and connection.freed_ns > fresh_ns:
                found = connection
            else:
                connection.close()
        if self._spare and not self._idle and not self._opening and self._roomy:
            self._start(self._keep_spare)
        return found

    def put(self, connection: HttpConnection) -> None:
        """Take a connection that nobody needs; it serves a later request."""
        connection.freed_ns = time.perf_counter_ns()
        self._idle.insert(0, connection)

    async def warm(self, count: int) -> None:
        """Open ``count`` connections ahead of need; what fails now fails again at the send."""
        wanted = max(0, min(count, self._limit - len(self._open)))
        opened = await asyncio.gather(*(self.open() for _ in range(wanted)), return_exceptions=True)
        for connection in opened:
            if isinstance(connection, HttpConnection):
                self.put(connection)

    def connect(self, then: Callable[[HttpConnection | OSError], None]) -> None:
        """Open a connection and hand it, or the reason why not, to ``then``."""
        self._start(then)

    async def open(self) -> HttpConnection:
        """Open one connection.

        Raises:
            ClientLimitError: when descriptors or local ports are used up.
            OSError: when the server cannot be reached.
        """
        if len(self._open) + self._pending >= self._limit:
            raise ClientLimitError(
                errno.EMFILE, f"{len(self._open)} connections are open, limit {self._limit}"
            )
        host, port = self._address or (self._origin.host, self._origin.port)
        server_hostname = self._origin.host if self._ssl is not None else None
        loop = asyncio.get_running_loop()
        self._pending += 1
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self._free, self._closed),
                    host,
                    port,
                    ssl=self._ssl,
                    server_hostname=server_hostname,
                )
        except TimeoutError as error:
            raise OSError(
                errno.ETIMEDOUT, f"no connection within {CONNECT_TIMEOUT_S:.0f} s"
            ) from error
        except OSError as error:
            if error.errno in LIMIT_ERRNOS:
                raise ClientLimitError(error.errno, str(error)) from error
            raise
        finally:
            self._pending -= 1
        self._open.add(connection)
        self.peak_open = max(self.peak_open, len(self._open))
        # One name look-up a run: later connections go to the address that answered.
        self._address = connection.peer or self._address
        return connection

    async def close(self) -> None:
        """Drop every connection and wait until asyncio has seen them go."""
        for task in self._opening:
            task.cancel()
        for connection in tuple(self._open):
            connection.abort()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)

    @property
    def _roomy(self) -> bool:
        """Tell whether a spare takes no connection that a request will soon need."""
        return 2 * (len(self._open) + len(self._opening)) < self._limit

    def _start(self, then: Callable[[HttpConnection | OSError], None]) -> None:
        task = asyncio.ensure_future(self.open())
        self._opening.add(task)
        task.add_done_callback(lambda done: self._opened(done, then))

    def _opened(
        self,
        task: asyncio.Task[HttpConnection],
        then: Callable[[HttpConnection | OSError], None],
    ) -> None:
        self._opening.discard(task)
        if task.cancelled():
            then(OSError(errno.ECANCELED, "cancelled"))
            return
        error = task.exception()
        if error is None:
            then(task.result())
        elif isinstance(error, OSError):
            then(error)
        else:
            raise error

    def _keep_spare(self, opened: HttpConnection | OSError) -> None:
        if isinstance(opened, HttpConnection):
            self.put(opened)

    def _free(self, connection: HttpConnection) -> None:
        self._idle.append(connection)

    def _closed(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
