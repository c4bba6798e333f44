"""Points of (cap, budget) measured live on one engine and on real restarts with these values.

    python -m tests.benchmarks.live_against_restart WORK --model DIR [--flavour cuda --python PY]
        [--passes live,restart,live] [--points 1024:8192,256:1024] [--trace FILE --from-s A]

Passes: ``live`` starts one engine at the widest point and moves it, ``restart`` starts one engine
a point without the plug-in, ``plugin`` likewise with it (so that the plug-in's own cost shows).
Two passes of one kind are the noise floor. Every pass offers the same schedule to engines that
were warmed alike; KV memory and graph sizes are pinned alike. Points already in WORK/points.jsonl
are not measured again, so a call that was cut off is simply repeated. Needs neither network,
MLflow nor Prefect.
"""

import argparse
import os
import shlex
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from flows.engine_warm_up import fill_to_limit, warm_rounds
from tasks.adapters.load_client.replay import replay
from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.deploy import deploy_engine, move_engine
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.hardware import Flavour
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import reduce_records
from tasks.domain.parameters import ParameterValue, ParameterValues
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tasks.domain.slo import Slo
from tests.benchmarks.point_rows import Row, keep, row_of, rows_in, table

VOCABULARY = PromptVocabulary(token_ids=tuple(range(1_000, 20_000)))
WARM_REQUESTS = 8
DEFAULTS: dict[str, dict[str, object]] = {
    "cpu": {
        "points": "2:64,4:128,8:256,16:512", "rate": 2.0, "duration": 30.0, "prompt": 60,
        "output": 24, "max_model_len": 1024, "ttft": 2.0, "tpot": 0.3,
    },
    "cuda": {
        "points": "1024:8192,256:1024,128:512,32:2048", "rate": 18.0, "duration": 60.0,
        "prompt": 1000, "output": 200, "max_model_len": 8192, "ttft": 1.0, "tpot": 0.03,
    },
}  # fmt: skip


def the_schedule(asked: argparse.Namespace) -> RequestSchedule:
    """Return the requests of every pass: a part of a trace, or Poisson arrivals of one seed."""
    if asked.trace is None:
        draw = np.random.default_rng(asked.seed)
        due = np.cumsum(
            draw.exponential(1.0 / asked.rate, int(2 * asked.rate * asked.duration) + 10)
        )
        spread = draw.lognormal(0.0, 0.5, (2, due.size))
        prompts = np.clip(asked.prompt * spread[0], 8, asked.max_model_len / 2)
        outputs = np.clip(asked.output * spread[1], 2, asked.max_model_len / 3)
    else:
        trace = load_trace(asked.trace)
        length = trace.prompt_tokens + trace.output_tokens
        inside = (trace.arrival_s >= asked.from_s) & (trace.arrival_s < asked.to_s)
        inside &= length <= asked.max_model_len
        due = trace.arrival_s[inside] - asked.from_s
        due *= inside.sum() / (asked.to_s - asked.from_s) / asked.rate
        prompts, outputs = trace.prompt_tokens[inside], trace.output_tokens[inside]
    rows = zip(due.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    requests = tuple(
        ScheduledRequest(index=i, due_s=t, prompt_tokens=int(p), output_tokens=int(o))
        for i, (t, p, o) in enumerate(row for row in rows if row[0] < asked.duration)
    )
    return RequestSchedule(requests=requests, duration_s=asked.duration, seed=asked.seed)


@contextmanager
def engine(
    asked: argparse.Namespace, seqs: int, tokens: int, *, live: bool
) -> Iterator[RunningEngine]:
    """Start an engine with these values, the memory pinned, filled once to its cap."""
    flavour = Flavour(asked.flavour)
    values: dict[str, ParameterValue] = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "max_model_len": asked.max_model_len,
    }
    if flavour is Flavour.CUDA:
        values["kv_cache_memory_bytes"] = int(asked.kv_gib * 2**30)
        values["max_cudagraph_capture_size"] = asked.graph_size
    name = f"m-{uuid.uuid4().hex[:8]}"
    launch = EngineLaunch(
        model_dir=str(asked.model),
        served_name=name,
        python=str(asked.python),
        values=ParameterValues.of(values),
        flavour=flavour,
        extra_args=tuple(shlex.split(asked.extra)),
        env=tuple((n, os.environ[n]) for n in asked.pass_env.split(",") if n in os.environ),
        kv_cache_gib=asked.kv_gib,
        live_knobs=live,
    )
    folder = asked.work / name
    with deploy_engine(launch, workdir=folder, lease_dir=asked.work / "leases") as started:
        schedule = the_schedule(asked)
        fill_to_limit(schedule, seqs, lambda s: offered(started.endpoint, s))
        yield started


def offered(endpoint: Endpoint, schedule: RequestSchedule) -> None:
    replay(endpoint, schedule, vocabulary=VOCABULARY, salt=uuid.uuid4().hex)


def measured(
    asked: argparse.Namespace, running: RunningEngine, which: tuple[int, str], point: list[int]
) -> Row:
    """Warm one point up, offer the schedule and return its row."""
    schedule, endpoint = the_schedule(asked), running.endpoint
    warm_rounds(schedule, WARM_REQUESTS, lambda s: offered(endpoint, s))
    records, client = replay(
        endpoint, schedule, vocabulary=VOCABULARY, salt=uuid.uuid4().hex, drain_timeout_s=120.0
    )
    m = reduce_records(
        records,
        load_point=LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=schedule.duration_s),
        schedule_duration_s=schedule.duration_s,
        slo=Slo(ttft_s=asked.ttft, tpot_s=asked.tpot),
        client=client,
        schedule_sha256=schedule.sha256,
    )
    return row_of(m, which, point, running.facts.startup_s)


def run_pass(
    asked: argparse.Namespace, which: tuple[int, str], points: list[list[int]], file: Path
) -> None:
    """Measure the points of one pass that the file does not hold yet."""
    done = {(r.pass_no, r.seqs, r.tokens) for r in rows_in(file)}
    left = [p for p in points if (which[0], *p) not in done]
    if not left:
        return
    widest = [max(p[0] for p in points), max(p[1] for p in points)]
    if which[1] == "live":
        with engine(asked, *widest, live=True) as running:
            for point in left:
                seqs, tokens = point
                wanted = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens}
                move_engine(running.endpoint, ParameterValues.of(wanted))
                keep(file, measured(asked, running, which, point))
        return
    for point in left:
        with engine(asked, *point, live=which[1] == "plugin") as running:
            keep(file, measured(asked, running, which, point))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--flavour", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--python", default=os.environ.get("RETUNE_ENGINE_PYTHON", sys.executable))
    parser.add_argument("--passes", default="live,restart,live")
    parser.add_argument("--extra", default="", help="more engine arguments, one text")
    parser.add_argument("--pass-env", default="PYTHONPATH,VLLM_USE_FLASHINFER_SAMPLER")
    parser.add_argument("--kv-gib", type=float, default=None, help="default 1 on CPU, 64 on CUDA")
    parser.add_argument("--graph-size", type=int, default=512)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--from-s", type=float, default=0.0)
    parser.add_argument("--to-s", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points")
    for name in ("rate", "duration", "ttft", "tpot"):
        parser.add_argument(f"--{name}", type=float)
    for name in ("prompt", "output", "max-model-len"):
        parser.add_argument(f"--{name}", type=int)
    asked = parser.parse_args()
    for name, value in DEFAULTS[asked.flavour].items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    if asked.kv_gib is None:
        asked.kv_gib = 1.0 if asked.flavour == "cpu" else 64.0
    asked.work = asked.work.absolute()
    return asked


def main() -> int:
    """Run the passes in order and print the table."""
    asked = arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    file = asked.work / "points.jsonl"
    points = [[int(n) for n in text.split(":")] for text in asked.points.split(",")]
    for number, kind in enumerate(asked.passes.split(",")):
        run_pass(asked, (number, kind), points, file)
    print(table(rows_in(file)))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
