"""A small mechanistic model of continuous batching: what a schedule's requests would have met.

Knows vLLM's order of work (running requests first, then the queue, within a token budget, a cap on
sequences and a KV pool) and a step time that is linear in what the step holds. Refuses to know any
engine: the costs are fitted to measured requests (step_fit.py).
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What one engine step costs, in seconds.

    A step reads memory, M = fixed + per_context x tokens of context of the decoding sequences, and
    computes C = per_token x tokens, prompt and decode together. Their times overlap as on a
    roofline, but only a share ``overlap_frac`` (0..1) of M can hide: step = (1 - overlap) x M
    + max(overlap x M, C) + per_sequence x decoding sequences, and ``mixed_s`` more where prompt
    tokens are in it (vLLM replays whole graphs for pure decode steps only). per_request: seconds
    before a first token is seen that are outside the engine's steps (HTTP, tokenizer).
    """

    fixed_s: float
    per_token_s: float
    per_sequence_s: float
    per_context_s: float
    per_request_s: float
    mixed_s: float
    overlap_frac: float

    def as_vector(self) -> Floats:
        """Return the logarithms of the six costs and the logit of the overlap, shape (7,)."""
        costs = (self.fixed_s, self.per_token_s, self.per_sequence_s, self.per_context_s)
        logs = [math.log(cost) for cost in (*costs, self.per_request_s, self.mixed_s)]
        return np.array([*logs, math.log(self.overlap_frac / (1 - self.overlap_frac))])

    @classmethod
    def from_vector(cls, vector: Floats) -> "StepCosts":
        """Return the costs that ``as_vector`` would write so."""
        *logs, logit = (max(-40.0, min(10.0, value)) for value in vector.tolist())
        fixed, token, sequence, context, request, mixed = (math.exp(log) for log in logs)
        return cls(
            fixed_s=fixed,
            per_token_s=token,
            per_sequence_s=sequence,
            per_context_s=context,
            per_request_s=request,
            mixed_s=mixed,
            overlap_frac=1 / (1 + math.exp(-logit)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scheduler's limits; kv_tokens is None where the KV pool's size is not known."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """What each request would have met; arrays of shape (n,) in the load's order, seconds.

    tpot_s is NaN for a request of one token. peak_kv_tokens, peak_running: the most tokens held
    and sequences run at once.
    """

    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    peak_kv_tokens: int
    peak_running: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferedLoad:
    """Requests sorted by due time; arrays of shape (n,): seconds, tokens, tokens."""

    due_s: Floats
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    def faster(self, multiple: float) -> "OfferedLoad":
        """Return the same requests offered ``multiple`` times as fast."""
        return OfferedLoad(
            due_s=self.due_s / multiple,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
        )


def simulate(costs: StepCosts, load: OfferedLoad, limits: Limits) -> Simulated:
    """Return what the load would meet under these costs and limits."""
    return _Engine(costs, load, limits).run()


class _Engine:
    """The state of one simulation; every decoding sequence gains one token a step."""

    def __init__(self, costs: StepCosts, load: OfferedLoad, limits: Limits) -> None:
        self.costs, self.limits = costs, limits
        self.due: list[float] = load.due_s.tolist()
        self.prompt: list[int] = load.prompt_tokens.tolist()
        self.output: list[int] = load.output_tokens.tolist()
        self.pool = math.inf if limits.kv_tokens is None else limits.kv_tokens
        self.first = [math.nan] * len(self.due)
        self.last = [math.nan] * len(self.due)
        self.waiting: deque[int] = deque()
        self.prefilling: deque[list[int]] = deque()  # [request, prompt tokens left]
        self.ends: list[tuple[int, int]] = []  # (step of the last token, request)
        self.arrived = self.step = self.context = self.held = self.peak = self.most = 0
        self.clock = 0.0

    def run(self) -> Simulated:
        while self.arrived < len(self.due) or self.waiting or self.prefilling or self.ends:
            self._arrive()
            tokens, finished = self._schedule()
            if tokens:
                self._advance(1, tokens)
                self._begin_decoding(finished)
            elif self.ends:
                self._advance(self._quiet_steps(), 0)
            elif self.arrived < len(self.due):
                self.clock = max(self.clock, self.due[self.arrived])
            else:
                break  # what waits can never fit the pool: it stays without a first token
        return self._result()

    def _arrive(self) -> None:
        while self.arrived < len(self.due) and self.due[self.arrived] <= self.clock:
            self.waiting.append(self.arrived)
            self.arrived += 1

    def _schedule(self) -> tuple[int, list[int]]:
        """Return the prompt tokens of this step and the requests whose prompt it completes."""
        room = self.limits.max_num_batched_tokens - len(self.ends)
        tokens, finished = 0, []
        if self.waiting:
            self._admit(room)
        for entry in self.prefilling:
            if room <= 0:
                break
            taken = min(entry[1], room)
            entry[1] -= taken
            room -= taken
            tokens += taken
            if entry[1] == 0:
                finished.append(entry[0])
        for _ in finished:
            self.prefilling.popleft()
        return tokens, finished

    def _admit(self, room: int) -> None:
        room -= sum(entry[1] for entry in self.prefilling)
        running = len(self.ends) + len(self.prefilling)
        while self.waiting and room > 0 and running < self.limits.max_num_seqs:
            head = self.waiting[0]
            # Holding the whole answer's room from the start stands for preemption by recompute.
            if self.held + self.prompt[head] + self.output[head] > self.pool:
                break
            self.waiting.popleft()
            self.held += self.prompt[head] + self.output[head]
            self.prefilling.append([head, self.prompt[head]])
            room -= self.prompt[head]
            running += 1
        self.most = max(self.most, running)

    def _quiet_steps(self) -> int:
        """Return how many decode-only steps pass before anything else can happen."""
        steps = self.ends[0][0] - self.step
        slots_free = len(self.ends) < self.limits.max_num_seqs
        if self.waiting or not slots_free or self.arrived == len(self.due):
            return max(1, steps)
        until = self.due[self.arrived] - self.clock
        return max(1, min(steps, math.ceil(until / self._step_s(steps, 0))))

    def _step_s(self, steps: int, prompt_tokens: int) -> float:
        """Return the mean seconds of the next steps; the context grows meanwhile."""
        n, costs = len(self.ends), self.costs
        context = self.context + n * (steps - 1) / 2
        memory = costs.fixed_s + costs.per_context_s * context
        hidden = costs.overlap_frac * memory
        compute = costs.per_token_s * (prompt_tokens + n)
        mixed = costs.mixed_s if prompt_tokens else 0.0
        return memory - hidden + max(hidden, compute) + costs.per_sequence_s * n + mixed

    def _advance(self, steps: int, prompt_tokens: int) -> None:
        self.clock += steps * self._step_s(steps, prompt_tokens)
        self.context += steps * len(self.ends)
        self.step += steps
        self.peak = max(self.peak, self.context + sum(e[1] for e in self.prefilling))
        while self.ends and self.ends[0][0] <= self.step:
            _, request = heapq.heappop(self.ends)
            self._end(request)
            self.context -= self.prompt[request] + self.output[request]

    def _begin_decoding(self, finished: list[int]) -> None:
        for request in finished:
            self.first[request] = self.clock
            if self.output[request] == 1:
                self._end(request)
                continue
            self.context += self.prompt[request] + 1
            heapq.heappush(self.ends, (self.step + self.output[request] - 1, request))

    def _end(self, request: int) -> None:
        self.last[request] = self.clock
        self.held -= self.prompt[request] + self.output[request]

    def _result(self) -> Simulated:
        due, first, last = np.array(self.due), np.array(self.first), np.array(self.last)
        outputs = np.array(self.output, dtype=np.float64)
        gaps = np.where(outputs > 1, outputs - 1, np.nan)
        extra = self.costs.per_request_s
        return Simulated(
            ttft_s=first - due + extra,
            tpot_s=(last - first) / gaps,
            e2e_s=last - due + extra,
            peak_kv_tokens=self.peak,
            peak_running=self.most,
        )
