"""A golden server: real HTTP/1.1 on 127.0.0.1 that streams scripted bytes at known times.

Speaks /v1/completions, /v1/chat/completions, /v1/models and /version. A script says what a
request gets, faults included; the server notes perf_counter_ns just before each event it writes.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.fakes.stream_events import DONE, completion_event, usage_event

EVENT_STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes written ``gap_s`` after the step before; tokens: what they carry, for reading."""

    data: bytes
    gap_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one request gets.

    ending: "end" (a whole response), "cut" (connection dropped in mid-body), "hang" (nothing
    more, connection open) or "refuse" (dropped before any answer). gate: hold answers until that
    many requests have been in flight at once. body: a plain response instead of a stream.
    """

    steps: tuple[Step, ...] = ()
    status: int = 200
    content_type: str = EVENT_STREAM
    headers_gap_s: float = 0.0
    split_headers: bool = False
    ending: str = "end"
    gate: int = 0
    body: bytes | None = None
    close_delimited: bool = False


@dataclass(slots=True, kw_only=True)
class Received:
    """A request as it came and the times of the token events written for it."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, object]
    at_ns: int
    token_ns: list[int] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Return the request's index: the number behind the last dash of its X-Request-Id."""
        return int(self.headers["x-request-id"].rpartition("-")[2])


def steady(tokens: int, *, gap_s: float, first_s: float, prompt_tokens: int = 5) -> Script:
    """Return ``tokens`` tokens, one a chunk, at even gaps, then usage and [DONE]."""
    steps = [
        Step(
            data=completion_event(
                f" t{i}",
                counted=i,
                prompt_tokens=prompt_tokens,
                finish="length" if i == tokens else None,
            ),
            gap_s=first_s if i == 1 else gap_s,
            tokens=1,
        )
        for i in range(1, tokens + 1)
    ]
    steps += [Step(data=usage_event(prompt_tokens, tokens)), Step(data=DONE)]
    return Script(steps=tuple(steps))


class GoldenServer:
    """The server; ``received`` and ``peak_in_flight`` are for the test to read afterwards."""

    def __init__(
        self,
        script: Callable[[Received], Script],
        *,
        served: tuple[str, ...] = ("golden",),
        max_model_len: int = 4096,
    ) -> None:
        self._script = script
        self._served = served
        self._max_model_len = max_model_len
        self._in_flight = 0
        self._gate = asyncio.Event()
        self.received: list[Received] = []
        self.connections = 0
        self.peak_in_flight = 0
        self.port = 0

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def completions(self) -> dict[int, Received]:
        """Return the load's requests by index."""
        return {r.number: r for r in self.received if "x-request-id" in r.headers}

    async def listen(self, port: int = 0) -> asyncio.Server:
        """Start listening in the running loop."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=4096)
        self.port = int(server.sockets[0].getsockname()[1])
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.received.append(request)
                if not await self._answer(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client hung up, or the test is over; asyncio would log either as a fault.
            pass
        finally:
            writer.close()

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> bool:
        plain = self._plain(request)
        if plain is not None:
            await _write_plain(writer, plain)
            return True
        self._in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
        try:
            return await self._stream(request, self._script(request), writer)
        finally:
            self._in_flight -= 1

    def _plain(self, request: Received) -> Script | None:
        if request.path == "/version":
            return Script(body=b'{"version":"0.32.0"}', content_type=JSON)
        if request.path == "/v1/models":
            cards = [{"id": name, "max_model_len": self._max_model_len} for name in self._served]
            return Script(body=json.dumps({"data": cards}).encode(), content_type=JSON)
        model = request.body.get("model")
        if model not in self._served:
            message = f"The model `{model}` does not exist."
            return Script(status=404, body=_error(message, 404), content_type=JSON)
        return None

    async def _stream(
        self, request: Received, script: Script, writer: asyncio.StreamWriter
    ) -> bool:
        if self._in_flight >= script.gate:
            self._gate.set()
        await self._gate.wait()
        if script.ending == "refuse":
            writer.transport.abort()
            return False
        if script.body is not None:
            await asyncio.sleep(script.headers_gap_s)
            await _write_plain(writer, script)
            return True
        await _write_head(writer, script)
        due_s = asyncio.get_running_loop().time()
        for step in script.steps:
            due_s += step.gap_s
            await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
            if step.tokens:
                request.token_ns.append(time.perf_counter_ns())
            data = step.data
            writer.write(data if script.close_delimited else b"%x\r\n%s\r\n" % (len(data), data))
        if script.ending == "cut":
            await writer.drain()
            return False
        if script.ending == "hang":
            await asyncio.sleep(3600)
        if script.close_delimited:
            return False
        writer.write(b"0\r\n\r\n")
        return True


def error_script(message: str, status: int) -> Script:
    """Return a refusal as vLLM writes it."""
    return Script(status=status, body=_error(message, status), content_type=JSON)


@contextlib.contextmanager
def golden_server(
    script: Callable[[Received], Script] | Script,
    *,
    served: tuple[str, ...] = ("golden",),
) -> Iterator[GoldenServer]:
    """Run a server in a thread of its own for the length of a with block."""
    chosen = (lambda _: script) if isinstance(script, Script) else script
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="golden-server")
    thread.start()
    try:
        golden = GoldenServer(chosen, served=served)
        server = asyncio.run_coroutine_threadsafe(golden.listen(), loop).result(10)
        yield golden
        loop.call_soon_threadsafe(server.close)
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(
        method=method,
        path=path,
        headers=headers,
        body=json.loads(data) if data else {},
        at_ns=time.perf_counter_ns(),
    )


def _error(message: str, code: int) -> bytes:
    value = {"message": message, "type": "BadRequestError", "param": None, "code": code}
    return json.dumps({"error": value}).encode()


async def _write_plain(writer: asyncio.StreamWriter, script: Script) -> None:
    body = script.body or b""
    head = f"HTTP/1.1 {script.status} X\r\ncontent-type: {script.content_type}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _write_head(writer: asyncio.StreamWriter, script: Script) -> None:
    framing = "connection: close" if script.close_delimited else "transfer-encoding: chunked"
    head = f"HTTP/1.1 {script.status} OK\r\ncontent-type: {script.content_type}\r\n{framing}\r\n"
    if script.split_headers:
        writer.write(head[:12].encode())
        head = head[12:]
    await asyncio.sleep(script.headers_gap_s)
    writer.write(f"{head}\r\n".encode())
