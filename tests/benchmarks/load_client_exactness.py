"""How exact our load client's own figures are, against a golden server that stamps what it writes.

    python tests/benchmarks/load_client_exactness.py [--rate 200 --seconds 10 --tokens 16]

Errors are the client's stamps minus the server's just before its write, so the kernel's loopback is
in them. The fixed cost of a request is the CPU of requests of one token, less one chunk's cost.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.adapters.load_client.event_loop import run_to_end
from tasks.adapters.load_client.load_job import LoadJob
from tasks.adapters.load_client.load_run import run_load
from tasks.adapters.load_client.request_body import RequestWriter
from tasks.domain.endpoint import Endpoint
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import ScheduledRequest

HERE = Path(__file__).resolve().parent
GAP_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was offered: the records, the loop's start in perf_counter_ns, CPU seconds."""

    records: tuple[RequestRecord, ...]
    started_ns: int
    cpu_s: float


def offer(url: str, *, rate: float, requests: int, tokens: int) -> Load:
    """Send the requests at even times and return what came back."""
    started_ns: list[int] = []

    async def start() -> int:
        await asyncio.sleep(0.2)
        started_ns.append(time.perf_counter_ns())
        return started_ns[0]

    job = LoadJob(
        writer=RequestWriter(
            endpoint=Endpoint(url=url, model="golden", owned=False),
            vocabulary=PromptVocabulary(token_ids=(1, 2)),
            seed=1,
            salt=f"e{tokens}",
            prefix_block_tokens=16,
        ),
        requests=tuple(
            ScheduledRequest(index=i, due_s=i / rate, prompt_tokens=8, output_tokens=tokens)
            for i in range(requests)
        ),
        last_due_s=requests / rate,
        request_timeout_s=60.0,
        drain_timeout_s=60.0,
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = run_to_end(lambda: run_load(job, start=start, tick=lambda _: False))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Load(records=tuple(result.records), started_ns=started_ns[0], cpu_s=cpu_s)


def row(name: str, values_ms: list[float]) -> str:
    p50, p99 = np.quantile(values_ms, [0.5, 0.99])
    return f"{name:24} n={len(values_ms):<7} p50 {p50:8.3f} ms   p99 {p99:8.3f} ms"


def errors(load: Load, written: dict[str, list[int]]) -> tuple[list[float], list[float]]:
    """Return the errors of every first token and of every gap between tokens, in ms."""
    first: list[float] = []
    gaps: list[float] = []
    keys = {key.rpartition("-")[2]: stamps for key, stamps in written.items()}
    for record in load.records:
        server = np.array(keys[str(record.index)][-len(record.stamps) :], dtype=np.float64)
        ours = load.started_ns + 1e9 * np.array([at_s for at_s, _ in record.stamps])
        first.append(float(ours[0] - server[0]) / 1e6)
        gaps += np.abs((np.diff(ours) - np.diff(server)) / 1e6).tolist()
    return first, gaps


def main() -> int:
    """Print the errors, the lag of arrivals and a request's fixed cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=16)
    asked = parser.parse_args()
    command = [sys.executable, str(HERE / "golden_process.py"), "--gap-s", str(GAP_S)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    n = int(asked.rate * asked.seconds)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        offer(url, rate=asked.rate, requests=100, tokens=2)
        urllib.request.urlopen(f"{url}/stamps").read()
        load = offer(url, rate=asked.rate, requests=n, tokens=asked.tokens)
        written = json.loads(urllib.request.urlopen(f"{url}/stamps").read())
        single = offer(url, rate=asked.rate, requests=n, tokens=1)
    finally:
        server.terminate()
        server.wait()
    first, gaps = errors(load, written)
    lag = [1e3 * (r.sent_s - r.due_s) for r in load.records if r.sent_s is not None]
    chunk_s = (load.cpu_s - single.cpu_s) / (n * (asked.tokens - 1))
    lines = (
        f"{time.strftime('%F %T')} load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} "
        f"cores, {asked.rate:g} req/s for {asked.seconds:g} s, {asked.tokens} tokens {GAP_S:g} s "
        f"apart, {sum(r.ok for r in load.records)} of {n} ok",
        row("first token's stamp", first),
        row("gap between tokens", gaps),
        row("arrivals' lag", lag),
        f"CPU a chunk {1e6 * chunk_s:.1f} us; a request apart from its chunks "
        f"{1e3 * (single.cpu_s / n - chunk_s):.3f} ms",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
