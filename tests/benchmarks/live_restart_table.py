"""Print what live moves gave against restarts of the same points, from two studies' evidence.

Run: python tests/benchmarks/live_restart_table.py SEARCH_STUDY_FOLDER RESTARTS_STUDY_FOLDER
(folders that ``retune tune`` named; see gpu_study.py). Share of requests inside the SLO, TTFT and
TPOT p50, p90 and the largest in ms, tokens/s.
"""

import json
import sys
from pathlib import Path
from typing import Any

KNOBS = ("max_num_seqs", "max_num_batched_tokens")
HEAD = (
    "| max_num_seqs, tokens | how | n | inside SLO | TTFT p50 | p90 | max | TPOT p50 | p90 | max "
    "| tokens/s |\n"
    + "|---|" + "---|" * 10
)  # fmt: skip


def spread(latency: dict[str, Any]) -> tuple[str, ...]:
    """Return p50, p90 and the largest in ms, "-" where not covered."""
    known = {p["quantile"]: p["value_s"] for p in latency["percentiles"]}
    values = (known.get(0.5), known.get(0.9), latency["max_s"])
    return tuple("-" if value is None else f"{1e3 * value:.0f}" for value in values)


def row(point: tuple[int, int], how: str, m: dict[str, Any]) -> str:
    cells = (
        f"{point[0]}, {point[1]}", how, str(m["n_requests"]), f"{m['attainment_frac']:.1%}",
        *spread(m["ttft"]), *spread(m["tpot"]), f"{m['output_tok_s']:.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def live_points(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the measurement of every probe of the folder's searches."""
    found = {}
    for report in sorted(folder.glob("report/search-*.json")):
        for probe in json.loads(report.read_text()).get("probes", ()):  # also search-start files
            values = dict(probe["values"]["items"])
            stored = folder / "outcomes" / f"{probe['key']}.json"
            if stored.is_file():
                outcome = json.loads(stored.read_text())["outcome"]
                found[values[KNOBS[0]], values[KNOBS[1]]] = outcome["measurement"]
    return found


def main() -> int:
    """Print the points that both studies measured, live first."""
    search, restarts = (Path(argument) for argument in sys.argv[1:3])
    live = live_points(search)
    lines = [HEAD]
    for path in sorted(restarts.glob("trials/restart-*/trial.json")):
        point = tuple(int(part) for part in path.parent.name.split("-")[1:3])
        measured = [m["measurement"] for m in json.loads(path.read_text())["measurements"]]
        if point not in live or not measured:
            continue
        lines.append(row((point[0], point[1]), "live", live[point[0], point[1]]))
        lines += [row((point[0], point[1]), "restart", m) for m in measured]
    print("\n".join(lines))  # noqa: T201
    return 0 if len(lines) > 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
