"""A lean golden server for timings: many token streams at known times, in a process of its own.

Prints its port; GET /stamps gives perf_counter_ns of every token written, by X-Request-Id, and
forgets them. POST bodies need max_tokens or
max_completion_tokens. ``--lockstep`` writes all streams' tokens in one burst
a step, as an engine does; without it the streams' phases are spread over the gap.
"""

import argparse
import asyncio
import json
import sys
import time
from array import array
from pathlib import Path
from typing import cast

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.stream_events import DONE, completion_event, usage_event

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
PHASE_STEP_FRAC = 0.61803398875
MAX_TOKENS = 20_000


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Streams:
    """What all connections share: chunks made once, the stamps, the gap and the phases."""

    def __init__(self, gap_s: float, lockstep: bool) -> None:
        self.gap_s = gap_s
        self.lockstep = lockstep
        self.started = 0
        self.stamps: dict[str, array[int]] = {}
        self._chunks = [chunk(completion_event(" token", counted=i)) for i in range(MAX_TOKENS + 1)]

    def first_due_s(self, now_s: float) -> float:
        """Return when a stream that begins now writes its first token."""
        self.started += 1
        if self.lockstep:
            return (now_s // self.gap_s + 2) * self.gap_s
        return now_s + self.gap_s * (1 + self.started * PHASE_STEP_FRAC % 1)

    def token(self, number: int, last: int) -> bytes:
        """Return the chunk of the ``number``-th token, and the stream's end after the last."""
        if number < last:
            return self._chunks[number]
        data = completion_event(" token", counted=number, finish="length")
        return chunk(data) + chunk(usage_event(8, number)) + chunk(DONE) + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection, one stream at a time."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        if "/completions" in first:
            asked = json.loads(body)
            last = asked.get("max_tokens") or asked["max_completion_tokens"]
            self._stream(headers.get("x-request-id", "none"), last)
        else:
            self._reply(first.split(" ")[1])

    def _reply(self, path: str) -> None:
        status, value = "200 OK", dict[str, object]()
        if path == "/stamps":
            value = {key: list(stamps) for key, stamps in self._streams.stamps.items()}
            self._streams.stamps = {}
        elif path == "/v1/models":
            value = {"data": [{"id": "golden", "max_model_len": 100_000}]}
        else:
            status = "404 Not Found"
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def _stream(self, key: str, last: int) -> None:
        loop, streams = asyncio.get_running_loop(), self._streams
        stamps = streams.stamps.setdefault(key, array("q"))
        due_s = streams.first_due_s(loop.time())
        self._transport.write(HEAD)

        def write(number: int, due_s: float) -> None:
            if self._transport.is_closing():
                return
            stamps.append(time.perf_counter_ns())
            self._transport.write(streams.token(number, last))
            if number < last:
                due_s += streams.gap_s
                loop.call_at(due_s, write, number + 1, due_s)

        loop.call_at(due_s, write, 1, due_s)


async def serve(gap_s: float, lockstep: bool) -> None:
    """Serve until the process is ended."""
    streams = Streams(gap_s, lockstep)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(streams), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gap-s", type=float, required=True)
    parser.add_argument("--lockstep", action="store_true")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.gap_s, arguments.lockstep))
