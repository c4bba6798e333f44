"""Scores every search policy offline: on a measured table and on simulated tables. Seeded.

Run: python tests/benchmarks/search_replay_scores.py TABLE.json.gz FOLDER_OF_TRACES
         [--part real|held-out|development] [--tables N] [--first N] [--policies a,b] [--keep FILE]

Real: every SLO of a grid (TTFT 0.3-3 s, TPOT 15-50 ms) under which at most a fifth of the table's
points reach 95 % of its best and the default is not one of them. Simulated: the same, where the
best point also serves at least half of the requests inside the SLO; at most SLOS_A_TABLE of a
table, drawn. Development tables (even seeds, their own minutes of the traces) are for changing the
policy, held-out tables (odd seeds, other minutes) only for scoring it. Points are counted after
the default, which every policy measures first. A policy that stops before it reached a good point
counts as if it had been left to measure all points. --keep appends every replay to a file, for
runs in parts; --summary FILE prints the scores of such a file.
"""

# ruff: noqa: T201 - a script whose product is what it prints
import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tasks.adapters.measured_table import load_measured_table
from tasks.adapters.trace_files.loading import load_trace
from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.objective import Objective
from tasks.domain.search.protocol import Policy
from tasks.domain.search.replay import (
    MeasuredTable,
    Replay,
    is_selective,
    replay,
    score,
    table_worths,
)
from tasks.domain.search.start import search_start
from tasks.domain.search.start_points import Suggested, starting_points
from tasks.domain.search.step_model import OfferedLoad
from tasks.domain.slo import Slo
from tasks.propose import make_policy
from tests.fakes.simulated_engine import (
    Hardware,
    SimulatedEngine,
    capacity_req_s,
    drawn_hardware,
    simulated_table,
)

TTFT_S = (0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
TPOT_S = (0.015, 0.0175, 0.02, 0.0225, 0.025, 0.0275, 0.03, 0.035, 0.04, 0.045, 0.05)
SEEDS = {"ours": 1, "tpe": 3, "gp": 3, "random": 20, "grid": 1}
SLOS_A_TABLE = 4
REQUESTS = 260
CONV, CODE = "AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv"
MOONCAKE = "mooncake_conversation_{}20min.jsonl"


@dataclass(frozen=True, kw_only=True)
class Source:
    file: str
    first_min: float
    last_min: float


DEVELOPMENT = (
    Source(file=CONV, first_min=2, last_min=24),
    Source(file=CODE, first_min=2, last_min=26),
    Source(file=MOONCAKE.format("first"), first_min=1, last_min=18),
)
HELD_OUT = (
    Source(file=CONV, first_min=36, last_min=56),
    Source(file=CODE, first_min=30, last_min=54),
    Source(file=MOONCAKE.format("last"), first_min=1, last_min=18),
)


def load_of(folder: Path, source: Source, seed: int) -> OfferedLoad:
    """Return the requests after a drawn minute, lengths clipped to a context of 8192."""
    random = np.random.default_rng([seed, 2])
    trace = load_trace(folder / source.file)
    start = 60.0 * float(random.uniform(source.first_min, source.last_min))
    begin = int(np.searchsorted(trace.arrival_s, start))
    part = slice(begin, begin + REQUESTS)
    due = trace.arrival_s[part] - trace.arrival_s[begin]
    if source.file.startswith("mooncake"):  # its times are rounded to 3 s: spread each bucket
        due = np.sort(due + random.uniform(0.0, 3.0, due.size))
    output = np.clip(trace.output_tokens[part], 1, 2048)
    return OfferedLoad(
        due_s=due,
        prompt_tokens=np.clip(trace.prompt_tokens[part], 1, 8192 - output),
        output_tokens=output,
    )


def drawn_table(folder: Path, sources: tuple[Source, ...], seed: int) -> MeasuredTable:
    """Return one simulated table: hardware, minute and load all follow from the seed."""
    random = np.random.default_rng([seed, 3])
    source = sources[int(random.integers(len(sources)))]
    load, hardware = load_of(folder, source, seed), drawn_hardware(seed)
    rate = float(random.uniform(0.45, 0.95)) * capacity_req_s(hardware, load)
    rate = bearable(hardware, load, rate, seed)
    natural = load.due_s.size / max(float(load.due_s[-1]), 1e-3)
    name = f"seed {seed}: {hardware.name}, {source.file.split('.')[0][-18:]}, {rate:.1f} req/s"
    fast = load.faster(rate / natural)
    return simulated_table(hardware, fast, name=name, duration_s=load.due_s.size / rate, seed=seed)


def bearable(hardware: Hardware, load: OfferedLoad, rate: float, seed: int) -> float:
    """Return the rate, lowered until the defaults come near the SLOs' range."""
    natural = load.due_s.size / max(float(load.due_s[-1]), 1e-3)
    for _ in range(8):
        engine = SimulatedEngine(
            hardware=hardware,
            max_num_seqs=hardware.seqs,
            max_num_batched_tokens=hardware.tokens,
            seed=seed,
        )
        rows = engine.serve(load.faster(rate / natural), duration_s=load.due_s.size / rate)
        ttft, tpot = np.nanquantile(rows.ttft_s, 0.9), np.nanmedian(rows.tpot_s)
        if ttft <= 4.0 and tpot <= 0.045:
            break
        rate *= 0.8
    return rate


def selective(
    table: MeasuredTable, *, limit: int | None = None, least: float = 0.0, seed: int = 0
) -> list[Objective]:
    """Return the objectives under which few points are good; at most ``limit``, drawn.

    least: the share of requests that the best point must serve inside the SLO.
    """
    every = [Objective(slo=Slo(ttft_s=ttft, tpot_s=tpot)) for ttft in TTFT_S for tpot in TPOT_S]
    found = [o for o in every if is_selective(table, o) and attainable(table, o) >= least]
    if limit is None or len(found) <= limit:
        return found
    chosen = np.random.default_rng([seed, 4]).choice(len(found), limit, replace=False)
    return [found[i] for i in sorted(chosen)]


def simulated_slos(table: MeasuredTable, seed: int) -> list[Objective]:
    """Return the SLOs of a simulated table, which half of the requests must be able to meet."""
    return selective(table, limit=SLOS_A_TABLE, least=0.5, seed=seed)


def attainable(table: MeasuredTable, objective: Objective) -> float:
    """Return the best point's share of requests inside the SLO."""
    rows = table.points[0].rows
    return max(table_worths(table, objective).values()) * rows.duration_s / rows.ttft_s.size


def replays_of(
    name: str, table: MeasuredTable, objectives: Iterable[Objective]
) -> Iterator[Replay]:
    space, memory = table.space(), Calibrations(kv_tokens=table.kv_tokens)
    for objective in objectives:
        # What a study's search starts from, without a curve: the guide's values for the regime.
        starts = starting_points(space, search_start(objective.regime, objective.slo))

        def make(
            seed: int, objective: Objective = objective, starts: tuple[Suggested, ...] = starts
        ) -> Policy:
            return make_policy(name, space, objective, seed=seed, starts=starts, memory=memory)

        for seed in range(SEEDS[name]):
            yield replay(table, objective, make, seed=seed)


def report(title: str, found: Mapping[str, Sequence[Replay]]) -> None:
    print(f"\n{title}")
    print("policy   replays reached  points p50  p90  max   GPU s p50   p90   regret@1/2/3/4 (p90)")
    for name, replays in found.items():
        s = score(name, replays)
        regrets = "/".join(f"{value:.2f}" for value in s.regret_p90[1:5])
        print(
            f"{name:8} {s.replays:7} {s.reached_frac:7.2f} {s.points_median:10.1f} "
            f"{s.points_p90:5.1f} {max(r.points for r in replays):4} {s.gpu_s_median:10.0f} "
            f"{s.gpu_s_p90:6.0f}   {regrets}",
            flush=True,
        )


def tables_of(part: str, args: argparse.Namespace) -> list[tuple[MeasuredTable, list[Objective]]]:
    if part == "real":
        real = load_measured_table(args.table)
        return [(real, selective(real))]
    sources, odd = (DEVELOPMENT, 0) if part == "development" else (HELD_OUT, 1)
    seeds = [2 * i + odd for i in range(args.first, args.first + args.tables)]
    tables = [drawn_table(args.traces, sources, seed) for seed in seeds]
    return [(t, simulated_slos(t, seed)) for t, seed in zip(tables, seeds, strict=True)]


def run(part: str, args: argparse.Namespace) -> None:
    tables = tables_of(part, args)
    found: dict[str, list[Replay]] = {}
    for name in args.policies.split(","):
        for table, objectives in tables:
            for made in replays_of(name, table, objectives):
                found.setdefault(name, []).append(made)
                if args.keep is not None:
                    keep(args.keep, part, name, table, made)
    cases = sum(len(objectives) for _, objectives in tables)
    report(f"{part}: {cases} SLOs of {sum(bool(o) for _, o in tables)} tables", found)


def keep(path: Path, part: str, policy: str, table: MeasuredTable, made: Replay) -> None:
    plain = {**asdict(made), "asked": [], "part": part, "policy": policy, "table": table.name}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(plain) + "\n")


def summary(path: Path) -> None:
    parts: dict[str, dict[str, list[Replay]]] = {}
    tables: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        plain = json.loads(line)
        part, policy, table = (plain.pop(key) for key in ("part", "policy", "table"))
        parts.setdefault(part, {}).setdefault(policy, []).append(Replay(**plain))
        tables.setdefault(part, set()).add(table)
    for part, found in parts.items():
        report(f"{part}: {len(tables[part])} tables", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--part", choices=("real", "held-out", "development"))
    parser.add_argument("--tables", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--policies", default=",".join(SEEDS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--summary", type=Path)
    args = parser.parse_args()
    if args.summary is not None:
        summary(args.summary)
        return
    for part in ("real", "held-out") if args.part is None else (args.part,):
        run(part, args)


if __name__ == "__main__":
    main()
