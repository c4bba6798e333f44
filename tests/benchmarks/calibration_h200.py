"""Simulated H200: the step model fitted to the measured table, on the Azure trace's own minutes.

A study's arrivals are whole minutes of the conversation trace's peak (25 to 40), drawn with
replacement and sped up together to the mean rate. The engine's pace drifts from run to run and
wanders inside a run; requests are sent a fraction of a millisecond late, which changes batches as
it does on a real engine. Latencies are in seconds of the client, so a slow engine queues.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from tasks.adapters.measured_table import load_measured_table
from tasks.adapters.trace_files.loading import load_trace
from tasks.domain.search.step_fit import FittedPoint, fit_costs, prior_costs
from tasks.domain.search.step_model import Limits, OfferedLoad, StepCosts, simulate
from tasks.domain.trace import Trace
from tests.benchmarks.calibration_study import Arms, Floats, Run

RATE_REQ_S = 16.0
PEAK_MINUTES = range(25, 40)
MAX_MODEL_LEN, MAX_OUTPUT, KV_TOKENS = 8192, 2048, 819_200
TTFT_LIMIT_S, TPOT_LIMIT_S = 1.0, 0.03
FITTED = ((1024, 8192), (256, 1024), (1024, 2048), (128, 512), (64, 4096))
# On the table, runs whose cap does not bind differ in their median TPOT by 0.4 % (six pairs) and a
# pair's requests by 0.4 % (interquartile range / 1.35): the model needs about these.
WANDER, WANDER_S, PACE_STEP_S = 0.003, 20.0, 5.0
SEND_LAG_S = 0.0003
SPEEDS = (1.0, 1.01, 1.02, 1.03, 1.04, 1.06)
DEFAULT, TUNED = (1024, 8192), (256, 1024)


@dataclass(frozen=True, kw_only=True)
class SimulatedH200:
    """drift: standard deviation of the logarithm of the pace from run to run."""

    name: str
    drift: float
    table: Path
    trace: Path
    least_window_s: float = 1.0

    @property
    def about(self) -> str:
        return (
            f"simulated H200 (step model fitted to the table), {RATE_REQ_S:g} req/s of the Azure "
            f"conversation trace's peak minutes, TTFT <= {TTFT_LIMIT_S:g} s and TPOT <= "
            f"{TPOT_LIMIT_S * 1e3:g} ms, A = {DEFAULT}, pace drifts by {self.drift:.1%} from run "
            f"to run"
        )

    @property
    def effects(self) -> tuple[str, ...]:
        return ("A/A", *(f"speed x {speed:g}" for speed in SPEEDS[1:]), f"B = {TUNED}")

    def study(self, rng: np.random.Generator, *, first_s: float, later_s: float) -> list[Arms]:
        whole = self._draw(rng, first_s)
        k = int(np.searchsorted(whole.due_s, later_s))
        part = OfferedLoad(
            due_s=whole.due_s[:k],
            prompt_tokens=whole.prompt_tokens[:k],
            output_tokens=whole.output_tokens[:k],
        )

        def runs(speed: float, knobs: tuple[int, int]) -> tuple[Run, Run]:
            return self._run(rng, whole, speed, knobs), self._run(rng, part, speed, knobs)

        a = runs(1.0, DEFAULT)
        faster = [Arms(a=a, b=runs(speed, DEFAULT)) for speed in SPEEDS]
        return [*faster, Arms(a=a, b=runs(1.0, TUNED))]

    @cached_property
    def _costs(self) -> StepCosts:
        table = load_measured_table(self.table)
        points = []
        for knobs in FITTED:
            found = next(
                p for p in table.points if (p.max_num_seqs, p.max_num_batched_tokens) == knobs
            )
            points.append(FittedPoint(limits=_limits(knobs), rows=found.rows))
        return StepCosts.from_vector(fit_costs(points, prior=prior_costs(points[0].rows)).vector)

    @cached_property
    def _minutes(self) -> tuple[OfferedLoad, ...]:
        return tuple(_minute(load_trace(self.trace), k) for k in PEAK_MINUTES)

    def _draw(self, rng: np.random.Generator, seconds: float) -> OfferedLoad:
        mean = sum(m.due_s.size for m in self._minutes) / 60 / len(self._minutes)
        length = 60 * mean / RATE_REQ_S
        count = int(seconds / length) + 1
        chosen = [self._minutes[i] for i in rng.integers(0, len(self._minutes), count)]
        due = np.concatenate([i * length + m.due_s / 60 * length for i, m in enumerate(chosen)])
        n = int(np.searchsorted(due, seconds))
        return OfferedLoad(
            due_s=due[:n],
            prompt_tokens=np.concatenate([m.prompt_tokens for m in chosen])[:n],
            output_tokens=np.concatenate([m.output_tokens for m in chosen])[:n],
        )

    def _run(
        self, rng: np.random.Generator, load: OfferedLoad, speed: float, knobs: tuple[int, int]
    ) -> Run:
        """Return one run: simulated in the engine's own time, read in the client's."""
        wall, engine = self._clocks(rng, float(load.due_s[-1]) + 300.0, speed)
        sent = load.due_s + rng.exponential(SEND_LAG_S, load.due_s.size)
        due = np.maximum.accumulate(np.interp(sent, wall, engine))
        offered = OfferedLoad(
            due_s=due, prompt_tokens=load.prompt_tokens, output_tokens=load.output_tokens
        )
        seen = simulate(self._costs, offered, _limits(knobs))
        first = np.interp(due + seen.ttft_s, engine, wall)
        last = np.interp(due + seen.e2e_s, engine, wall)
        gaps = np.maximum(load.output_tokens - 1, 1)
        good = (first - load.due_s <= TTFT_LIMIT_S) & ((last - first) / gaps <= TPOT_LIMIT_S)
        return Run(due_s=load.due_s, good=good, e2e_s=last - load.due_s)

    def _clocks(
        self, rng: np.random.Generator, seconds: float, speed: float
    ) -> tuple[Floats, Floats]:
        """Return times of the client and what the engine's own clock shows then."""
        n = int(seconds / PACE_STEP_S) + 1
        keep = float(np.exp(-PACE_STEP_S / WANDER_S))
        pushes = rng.normal(0, WANDER * np.sqrt(1 - keep**2), n)
        wander = lfilter([1.0], [1.0, -keep], pushes)
        pace = speed * np.exp(rng.normal(0, self.drift) + wander)
        wall = np.arange(n + 1) * PACE_STEP_S
        return wall, np.concatenate([[0.0], np.cumsum(pace * PACE_STEP_S)])


def _limits(knobs: tuple[int, int]) -> Limits:
    return Limits(max_num_seqs=knobs[0], max_num_batched_tokens=knobs[1], kv_tokens=KV_TOKENS)


def _minute(trace: Trace, k: int) -> OfferedLoad:
    i, j = np.searchsorted(trace.arrival_s, [60 * k, 60 * (k + 1)])
    output = np.clip(trace.output_tokens[i:j], 1, MAX_OUTPUT)
    return OfferedLoad(
        due_s=trace.arrival_s[i:j] - 60 * k,
        prompt_tokens=np.clip(trace.prompt_tokens[i:j], 1, MAX_MODEL_LEN - output),
        output_tokens=output,
    )


def simulated_h200(shared: Path) -> tuple[SimulatedH200, ...]:
    """Return the engine as calm and as restless as restarts may be; see README.md."""
    files = {
        "table": shared / "tables/h200-bf16-azure-conv-r18.json.gz",
        "trace": shared / "traces/AzureLLMInferenceTrace_conv.csv",
    }
    return (
        SimulatedH200(name="h200", drift=0.006, **files),
        SimulatedH200(name="h200-restless", drift=0.012, **files),
    )
