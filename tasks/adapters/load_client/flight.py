"""One request under way: takes its answer from the connection and becomes a record."""

import asyncio
from collections.abc import Callable

from tasks.adapters.load_client.connection import Headers, HttpConnection
from tasks.adapters.load_client.pool import ClientLimitError, ConnectionPool
from tasks.adapters.load_client.server_errors import without_secret
from tasks.adapters.load_client.stream import TokenStream
from tasks.adapters.load_client.verdict import Failure, http_failure, stream_failure
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import ScheduledRequest

NS_PER_S = 1e9
ERROR_BODY_LIMIT_BYTES = 65_536
OK = 200


class Flight:
    """A request from launch to landing; ``on_landed`` is called once, at its end.

    wanted_ns: when it should have been written. Its ResponseSink methods are called by the
    connection.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_data",
        "_is_stream",
        "_on_landed",
        "_pool",
        "_retried",
        "_reused",
        "_timer",
        "failure",
        "headers_ns",
        "landed",
        "request",
        "sent_ns",
        "status",
        "stream",
        "wanted_ns",
    )

    def __init__(
        self,
        request: ScheduledRequest,
        data: bytes,
        *,
        wanted_ns: int,
        pool: ConnectionPool,
        on_landed: Callable[["Flight"], None],
    ) -> None:
        self.request = request
        self.wanted_ns = wanted_ns
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.status: int | None = None
        self.stream = TokenStream()
        self.failure: Failure | None = None
        self.landed = False
        self._data = data
        self._pool = pool
        self._on_landed = on_landed
        self._connection: HttpConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._body = bytearray()
        self._is_stream = False
        self._reused = False
        self._retried = False

    def launch(self, timeout_s: float) -> None:
        """Send now, on an idle connection or on a new one."""
        self._timer = asyncio.get_running_loop().call_later(
            timeout_s, self.expire, f"no complete answer within request_timeout_s={timeout_s:g}"
        )
        connection = self._pool.take()
        if connection is None:
            self._pool.connect(self._connected)
        else:
            self._reused = True
            self._write(connection)

    def expire(self, reason: str) -> None:
        """End as TIMEOUT, unless the stream is complete and only the body's end is missing."""
        if self.stream.done:
            self._land(stream_failure(self.stream, lost=reason))
        else:
            self._land(("TIMEOUT", reason))

    def cancel(self) -> None:
        """End as CANCELLED."""
        self._land(("CANCELLED", "the run was stopped"))

    def response_started(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers."""
        self.status, self.headers_ns = status, at_ns
        kind = next((value for name, value in headers if name.lower() == b"content-type"), b"")
        self._is_stream = status == OK and not kind.lower().startswith(b"application/json")

    def body_received(self, data: bytes, at_ns: int) -> None:
        """Take a piece of the body."""
        if self._is_stream:
            self.stream.feed(data, at_ns)
        elif len(self._body) < ERROR_BODY_LIMIT_BYTES:
            self._body += data

    def response_ended(self, at_ns: int) -> None:
        """Take the clean end of the body."""
        self._connection = None
        if self._is_stream:
            self.stream.end(at_ns)
            self._land(stream_failure(self.stream, lost=None))
        else:
            self._land(http_failure(self.status or 0, bytes(self._body)))

    def response_lost(self, reason: str, *, unanswered: bool) -> None:
        """Take the loss of the connection; a kept-alive one that died unused is tried anew."""
        self._connection = None
        if unanswered and self._reused and not self._retried:
            self._retried = True
            self._pool.connect(self._connected)
        elif self._is_stream:
            self._land(stream_failure(self.stream, lost=reason))
        elif self.status is not None and self.status != OK:
            self._land(http_failure(self.status, bytes(self._body)))
        else:
            self._land(("CONNECTION_ERROR", reason))

    def record(self, *, start_ns: int, due_is_send: bool, secret: str | None) -> RequestRecord:
        """Return the record, its times in seconds from ``start_ns``."""

        def seconds(at_ns: int | None) -> float | None:
            return None if at_ns is None else (at_ns - start_ns) / NS_PER_S

        stream, failure = self.stream, self.failure
        sent_s = seconds(self.sent_ns)
        wanted_s = (self.wanted_ns - start_ns) / NS_PER_S
        due_s = (sent_s if sent_s is not None else wanted_s) if due_is_send else self.request.due_s
        return RequestRecord(
            index=self.request.index,
            due_s=due_s,
            asked_prompt_tokens=self.request.prompt_tokens,
            asked_output_tokens=self.request.output_tokens,
            sent_s=sent_s,
            headers_s=seconds(self.headers_ns),
            first_token_s=seconds(stream.first_token_ns),
            last_token_s=seconds(stream.last_token_ns),
            stamps=tuple(
                ((at_ns - start_ns) / NS_PER_S, tokens)
                for at_ns, tokens in zip(stream.stamp_ns, stream.stamp_tokens, strict=True)
            ),
            prompt_tokens=stream.prompt_tokens,
            cached_tokens=stream.cached_tokens,
            completion_tokens=stream.completion_tokens,
            http_status=self.status,
            finish_reason=stream.finish_reason,
            error_code=None if failure is None else failure[0],
            error_message=None if failure is None else without_secret(failure[1], secret),
        )

    def _connected(self, opened: HttpConnection | OSError) -> None:
        if isinstance(opened, HttpConnection):
            if self.landed:
                self._pool.put(opened)
            else:
                self._reused = False
                self._write(opened)
        elif isinstance(opened, ClientLimitError):
            self._land(("CLIENT_LIMIT", str(opened)))
        else:
            self._land(("CONNECTION_ERROR", f"{type(opened).__name__}: {opened}"))

    def _write(self, connection: HttpConnection) -> None:
        self._connection = connection
        self.sent_ns = connection.send(self._data, self)

    def _land(self, failure: Failure | None) -> None:
        if self.landed:
            return
        self.landed = True
        self.failure = failure
        self._data = b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection, self._connection = self._connection, None
        if connection is not None:
            # Closing is how a server learns that nobody waits; it stops generating.
            connection.abort()
        self._on_landed(self)
