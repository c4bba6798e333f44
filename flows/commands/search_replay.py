"""``retune search-replay``: how soon a search policy finds a good point of a measured table."""

from pathlib import Path

from flows.commands.bench import parse_slo
from flows.output import number, print_json, print_lines, print_table
from tasks import propose
from tasks.domain.errors import ConfigError
from tasks.domain.search.objective import Objective
from tasks.domain.search.replay import (
    GOOD_FRAC,
    MeasuredTable,
    ReplayScore,
    good_points,
    score,
    table_worths,
)
from tasks.domain.slo import Slo

_LEAST_SEEDS = 1


def search_replay_command(
    table: Path, *, policy: str, seeds: int, slo: str | None, as_json: bool
) -> int:
    """Replay a policy on the table and print its score; 1 where no replay reached a good point."""
    name = propose.policy_name(policy)
    if seeds < _LEAST_SEEDS:
        raise ConfigError(f"--seeds {seeds} replays nothing; needed at least {_LEAST_SEEDS}")
    if slo is None:
        raise ConfigError(
            "--slo is missing: every request of a table is kept and is judged anew, so it needs "
            "limits; give --slo ttft=1.0,tpot=0.03"
        )
    limits = parse_slo(slo)
    measured = propose.read_table(table)
    replays = propose.replay_policy(measured, Objective(slo=limits), name=name.value, seeds=seeds)
    result = score(name.value, replays)
    facts = _facts(measured, limits)
    if as_json:
        print_json({"table": facts, "score": result, "replays": replays})
    else:
        print_lines(f"{key}: {value}" for key, value in facts.items())
        _print_score(result)
    return 0 if result.reached_frac > 0 else 1


def _facts(table: MeasuredTable, slo: Slo) -> dict[str, object]:
    worths = table_worths(table, Objective(slo=slo))
    best = max(worths, key=lambda point: worths[point])
    good, reference = good_points(worths), table.space().reference
    return {
        "table": table.name,
        "space": "only the table's measured points can be asked; it need not be a full grid",
        "points": len(worths),
        "good_points": len(good),
        "good_means": f"at least {100 * GOOD_FRAC:g} % of the best goodput",
        "best": best.text,
        "best_goodput_req_s": worths[best],
        "default": reference.text,
        "default_goodput_req_s": worths[reference],
        "default_is_good": reference in good,
    }


def _print_score(result: ReplayScore) -> None:
    print_table(
        f"{result.policy}: after the default, to a good point ({result.replays} replays, "
        f"{100 * result.reached_frac:.0f} % reached one before they stopped)",
        ("", "median", "p90"),
        (
            ("points", number(result.points_median, 1), number(result.points_p90, 1)),
            ("GPU seconds", number(result.gpu_s_median, 0), number(result.gpu_s_p90, 0)),
        ),
    )
    pairs = zip(result.regret_median, result.regret_p90, strict=True)
    print_table(
        "regret: 1 - best so far / the table's best",
        ("points after the default", "median", "p90"),
        ((str(i), number(low, 3), number(high, 3)) for i, (low, high) in enumerate(pairs)),
    )
