"""An engine made of arithmetic: makes measured tables that no policy has seen.

It is deliberately not the step model that the search fits: it moves every sequence on its own,
preempts and recomputes, reads weights and KV by bytes, computes with an efficiency that falls for
small steps and grows with the attended context, pads decodes to graph sizes, schedules one step
ahead, stalls now and then, and every step and request carries noise. It is still a simulation:
what holds on it is not thereby shown of an engine.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.domain.search.observation import RequestRows
from tasks.domain.search.replay import MeasuredTable, TablePoint
from tasks.domain.search.step_model import OfferedLoad


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A device with a model on it: bytes, FLOP/s, seconds."""

    name: str
    weight_bytes: float
    flop_per_token: float
    attention_flop: float  # per prompt token and token of context before it
    kv_bytes_per_token: float
    bandwidth: float
    flops: float
    half_tokens: float  # tokens a step at which half of flops is reached
    overlap: float  # share of reading that hides under computing
    launch_s: float  # eager overhead of a step with prompt tokens
    graph_s: float  # overhead of a decode-only step under a graph
    host_s: float  # host work per running sequence
    frontend_s: float
    kv_tokens: int
    seqs: int
    tokens: int


# Bounds of the draws: (GB of weights, GFLOP a token, KB of KV a token, TB/s, TFLOP/s, KV tokens,
# default max_num_seqs, default max_num_batched_tokens); figures of public data sheets, rounded.
_KINDS = {
    "h200-8b": (16, 16, 128, 4.0, 650, 900_000, 1024, 8192),
    "h100-14b": (28, 28, 192, 2.8, 600, 200_000, 1024, 8192),
    "a100-8b": (16, 16, 128, 1.6, 220, 350_000, 256, 2048),
    "l40s-8b-fp8": (8, 16, 64, 0.75, 300, 250_000, 256, 2048),
    "l4-1b": (2.4, 2.4, 32, 0.25, 70, 200_000, 256, 2048),
    "h100-70b-tp4-awq": (10, 35, 80, 2.4, 420, 120_000, 1024, 8192),
}


def drawn_hardware(seed: int) -> Hardware:
    """Return a hardware draw: a kind, every figure of it varied by up to about a third."""
    random = np.random.default_rng([seed, 1])
    name = list(_KINDS)[int(random.integers(len(_KINDS)))]
    weight, flop, kv, bandwidth, flops, pool, seqs, tokens = _KINDS[name]
    vary = np.exp(random.uniform(-0.3, 0.3, 7)).tolist()
    return Hardware(
        name=name,
        weight_bytes=weight * 1e9 * vary[0],
        flop_per_token=flop * 1e9 * vary[1],
        attention_flop=flop * 1e9 / 40_000 * vary[2],
        kv_bytes_per_token=kv * 1e3 * vary[3],
        bandwidth=bandwidth * 1e12 * vary[4],
        flops=flops * 1e12 * vary[5],
        half_tokens=float(random.uniform(30, 250)),
        overlap=float(random.uniform(0.0, 1.0)),
        launch_s=float(random.uniform(0.5e-3, 4e-3)),
        graph_s=float(random.uniform(0.2e-3, 1.5e-3)),
        host_s=float(random.uniform(2e-6, 60e-6)),
        frontend_s=float(random.uniform(2e-3, 15e-3)),
        kv_tokens=int(pool * vary[6]),
        seqs=seqs,
        tokens=tokens,
    )


@dataclass(eq=False, slots=True)
class _Request:
    index: int
    due: float
    prompt: int
    output: int
    done: int = 0  # tokens computed, prompt and generated
    made: int = 0  # tokens generated
    first: float = math.nan
    last: float = math.nan

    admitted: bool = False

    @property
    def wanted(self) -> int:
        """Tokens that must be computed before the next one comes out."""
        return self.prompt + self.made


@dataclass
class SimulatedEngine:
    """Continuous batching with recompute preemption; one use per load."""

    hardware: Hardware
    max_num_seqs: int
    max_num_batched_tokens: int
    seed: int
    running: list[_Request] = field(default_factory=list)
    waiting: deque[_Request] = field(default_factory=deque)
    preemptions: int = 0

    def serve(self, load: OfferedLoad, *, duration_s: float) -> RequestRows:
        """Return what every request of the load met."""
        random = np.random.default_rng([self.seed, self.max_num_seqs, self.max_num_batched_tokens])
        due, prompts, outputs = (
            load.due_s.tolist(), load.prompt_tokens.tolist(), load.output_tokens.tolist()
        )  # fmt: skip
        requests = [
            _Request(i, d, p, o)
            for i, (d, p, o) in enumerate(zip(due, prompts, outputs, strict=True))
        ]
        coming = deque(requests)
        clock = seen_until = 0.0
        while coming or self.waiting or self.running:
            # Scheduling runs one step ahead: arrivals during the last step wait one more.
            while coming and coming[0].due <= seen_until:
                self.waiting.append(coming.popleft())
            batch = self._schedule()
            if not batch:
                clock = seen_until = max(clock, coming[0].due)
                continue
            seen_until = clock
            clock += self._step_s(batch, random)
            self._finish(batch, clock)
        extra = self.hardware.frontend_s * random.lognormal(0.0, 0.3, len(requests))
        return _rows(requests, load, extra, duration_s)

    def _schedule(self) -> list[tuple[_Request, int]]:
        room = self.max_num_batched_tokens
        batch: list[tuple[_Request, int]] = []
        before = self.preemptions
        free = self.hardware.kv_tokens - sum(r.done for r in self.running)
        for request in list(self.running):
            if not request.admitted or room <= 0:
                continue
            count = min(request.prompt + request.made - request.done, room)
            while count > free and len(self.running) > 1:
                victim = self.running.pop()
                self.preemptions += 1
                free += victim.done
                batch = [(r, c) for r, c in batch if r is not victim]
                victim.done, victim.admitted = 0, False
                self.waiting.appendleft(victim)
                if victim is request:
                    break
            if request.admitted:
                batch.append((request, count))
                room -= count
                free -= count
        while (
            self.waiting
            and room > 0
            and len(self.running) < self.max_num_seqs
            and self.preemptions == before
        ):
            request = self.waiting[0]
            count = min(request.wanted - request.done, room)
            if request.wanted > free:
                break
            self.running.append(self.waiting.popleft())
            request.admitted = True
            batch.append((request, count))
            room -= count
            free -= count
        return batch

    def _step_s(self, batch: Sequence[tuple[_Request, int]], random: np.random.Generator) -> float:
        hw = self.hardware
        tokens = context = 0
        attended = 0.0
        for request, count in batch:
            tokens += count
            context += request.done
            if count > 1:
                attended += count * (request.done + count / 2)
        pure_decode = tokens == len(batch)
        padded = _graph_size(tokens) if pure_decode else tokens
        reading = (hw.weight_bytes + context * hw.kv_bytes_per_token) / hw.bandwidth
        rate = hw.flops * padded / (padded + hw.half_tokens)
        computing = (padded * hw.flop_per_token + attended * hw.attention_flop) / rate
        both = max(reading, computing) * hw.overlap + (reading + computing) * (1 - hw.overlap)
        overhead = (hw.graph_s if pure_decode else hw.launch_s) + hw.host_s * len(batch)
        stall = 0.03 if random.random() < 0.001 else 0.0
        return float((both + overhead) * random.lognormal(0.0, 0.04) + stall)

    def _finish(self, batch: Sequence[tuple[_Request, int]], clock: float) -> None:
        for request, count in batch:
            request.done += count
            if request.done < request.wanted:
                continue
            request.made += 1
            if request.made == 1:
                request.first = clock
            if request.made == request.output:
                request.last = clock
                request.admitted = False
        self.running = [request for request in self.running if request.admitted]


def _graph_size(tokens: int) -> int:
    if tokens > 512:
        return tokens
    return tokens if tokens in (1, 2, 4) else 8 * math.ceil(tokens / 8)


def _rows(
    requests: Sequence[_Request], load: OfferedLoad, extra: NDArray[np.float64], duration_s: float
) -> RequestRows:
    first, last = (np.array([getattr(r, name) for r in requests]) for name in ("first", "last"))
    gaps = load.output_tokens - 1
    tpot = np.where(gaps > 0, (last - first) / np.maximum(gaps, 1), np.nan)
    return RequestRows(
        load=load,
        ttft_s=first - load.due_s + extra,
        tpot_s=tpot,
        e2e_s=last - load.due_s + extra,
        duration_s=duration_s,
    )


def simulated_table(
    hardware: Hardware, load: OfferedLoad, *, name: str, duration_s: float, seed: int
) -> MeasuredTable:
    """Return the table of the whole grid around the hardware's defaults, the defaults first."""
    seqs = [16, 32, 64, 128, 256] + ([1024] if hardware.seqs == 1024 else [])
    tokens = [256, 512, 1024, 2048, 4096] + ([8192] if hardware.tokens == 8192 else [])
    grid = [(s, t) for s in seqs for t in tokens if t >= s]
    default = (hardware.seqs, hardware.tokens)
    grid.sort(key=lambda pair: pair != default)
    points = []
    for order, (cap, budget) in enumerate(grid):
        engine = SimulatedEngine(
            hardware=hardware, max_num_seqs=cap, max_num_batched_tokens=budget, seed=seed
        )
        rows = engine.serve(load, duration_s=duration_s)
        wall = float(np.nanmax(rows.load.due_s + rows.e2e_s))
        points.append(
            TablePoint(
                max_num_seqs=cap,
                max_num_batched_tokens=budget,
                order=order,
                wall_s=wall,
                rows=rows,
            )
        )
    return MeasuredTable(name=name, points=tuple(points), kv_tokens=hardware.kv_tokens)


def capacity_req_s(hardware: Hardware, load: OfferedLoad) -> float:
    """Return a rough rate that the hardware can carry: the fuller of computing and reading."""
    prompt, output = float(load.prompt_tokens.mean()), float(load.output_tokens.mean())
    computing = (prompt + output) * hardware.flop_per_token / hardware.flops
    batch = 64.0
    context = prompt + output / 2
    step = (hardware.weight_bytes + batch * context * hardware.kv_bytes_per_token) / (
        hardware.bandwidth
    )
    return 1.0 / (computing + output * (step + hardware.graph_s) / batch)
