"""One streaming client a name, all doing the same: read N streams and stamp every token.

Run with the interpreter that has the client's library:
``python peer_clients.py NAME URL STREAMS TOKENS OUT``. Writes JSON: cpu_s of the whole client
after imports, chunks, and perf_counter_ns of each token by X-Request-Id.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

Stamps = dict[str, list[int]]


def body_of(tokens: int) -> dict[str, object]:
    """Return the request that every client sends."""
    return {
        "model": "golden",
        "prompt": [1] * 8,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def has_text(event: str | bytes) -> bool:
    """Tell whether an event line carries text, as a client finds out: by parsing it."""
    if event in ("data: [DONE]", b"data: [DONE]"):
        return False
    choices = json.loads(event[6:])["choices"]
    return bool(choices and choices[0]["text"])


async def read_aiohttp(url: str, streams: int, tokens: int) -> Stamps:
    """Read with aiohttp, no connection limit, chunks as they come."""
    import aiohttp

    stamps: Stamps = {}

    async def one(session: "aiohttp.ClientSession", key: str) -> None:
        mine = stamps.setdefault(key, [])
        headers = {"X-Request-Id": key}
        buffer = b""
        async with session.post(url, json=body_of(tokens), headers=headers) as response:
            async for data in response.content.iter_any():
                at_ns = time.perf_counter_ns()
                *events, buffer = (buffer + data).split(b"\n\n")
                mine += [at_ns for event in events if has_text(event)]

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(one(session, f"a-{i}") for i in range(streams)))
    return stamps


async def read_httpx(url: str, streams: int, tokens: int) -> Stamps:
    """Read with httpx and its default transport, line by line."""
    import httpx

    stamps: Stamps = {}

    async def one(client: "httpx.AsyncClient", key: str) -> None:
        mine = stamps.setdefault(key, [])
        headers = {"X-Request-Id": key}
        async with client.stream("POST", url, json=body_of(tokens), headers=headers) as response:
            async for line in response.aiter_lines():
                if line and has_text(line):
                    mine.append(time.perf_counter_ns())

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:
        await asyncio.gather(*(one(client, f"h-{i}") for i in range(streams)))
    return stamps


def read_ours(url: str, streams: int, tokens: int) -> Stamps:
    """Read with this project's load client, every request due at once."""
    from tasks.adapters.load_client.event_loop import run_to_end
    from tasks.adapters.load_client.load_job import LoadJob
    from tasks.adapters.load_client.load_run import run_load
    from tasks.adapters.load_client.request_body import RequestWriter
    from tasks.domain.endpoint import Endpoint
    from tasks.domain.prompts import PromptVocabulary
    from tasks.domain.schedule import ScheduledRequest

    started_ns: list[int] = []

    async def start() -> int:
        started_ns.append(time.perf_counter_ns())
        return started_ns[0]

    base = url.removesuffix("/v1/completions")
    job = LoadJob(
        writer=RequestWriter(
            endpoint=Endpoint(url=base, model="golden", owned=False),
            vocabulary=PromptVocabulary(token_ids=(1, 2)),
            seed=1,
            salt="o",
            prefix_block_tokens=16,
        ),
        requests=tuple(
            ScheduledRequest(index=i, due_s=0.0, prompt_tokens=8, output_tokens=tokens)
            for i in range(streams)
        ),
        last_due_s=0.0,
        request_timeout_s=600.0,
        drain_timeout_s=600.0,
    )
    result = run_to_end(lambda: run_load(job, start=start, tick=lambda _: False))
    lateness = sorted(result.lateness_ns)
    probe_ms = lateness[int(0.99 * len(lateness))] / 1e6
    print(f"ours: its own probe says p99 {probe_ms:.2f} ms", file=sys.stderr)  # noqa: T201
    return {
        f"o-{record.index}": [started_ns[0] + round(at_s * 1e9) for at_s, _ in record.stamps]
        for record in result.records
    }


def cpu_s() -> float:
    """Return the CPU seconds of this process so far, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run one client and write what it saw."""
    name, url, streams, tokens, out = sys.argv[1:]
    count, length = int(streams), int(tokens)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    if name == "ours":
        read_ours(url, 1, 1)  # imports
        before_s = cpu_s()
        stamps = read_ours(url, count, length)
    else:
        read = {"aiohttp": read_aiohttp, "httpx": read_httpx}[name]
        asyncio.run(read(url, 1, 1))
        before_s = cpu_s()
        stamps = asyncio.run(read(url, count, length))
    used_s = cpu_s() - before_s
    chunks = sum(len(at_ns) for at_ns in stamps.values())
    Path(out).write_text(json.dumps({"cpu_s": used_s, "chunks": chunks, "stamps": stamps}))


if __name__ == "__main__":
    main()
