"""Print what a home's studies found, as Markdown: searches, sustainable rates, confirmations.

Run: python tests/benchmarks/gpu_study_table.py HOME      (the folder given to --offline)
Share of load: seconds in which requests were offered over the search's wall time, the engine's
start and warm-up included (steps.jsonl).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
KNOBS = ("max_num_seqs", "max_num_batched_tokens")


def point(values: dict[str, Any]) -> str:
    found = dict(values["items"])
    return "({}, {})".format(*(found.get(name, "default") for name in KNOBS))


def ms(latency: dict[str, Any], quantile: float) -> str:
    known = {p["quantile"]: p["value_s"] for p in latency["percentiles"]}
    value = known.get(quantile)
    return "-" if value is None else f"{1e3 * value:.0f}"


def measured(m: dict[str, Any]) -> tuple[str, ...]:
    """Return n, share inside with interval, goodput, TTFT p50/p99, TPOT p50/p99, E2E p99."""
    low, high = m["attainment_low_frac"], m["attainment_high_frac"]
    return (
        f"{m['n_requests']}",
        f"{m['attainment_frac']:.1%} ({low:.1%}-{high:.1%})",
        f"{m['goodput_req_s']:.2f} of {m['offered_req_s']:.2f}",
        f"{ms(m['ttft'], 0.5)} / {ms(m['ttft'], 0.99)}",
        f"{ms(m['tpot'], 0.5)} / {ms(m['tpot'], 0.99)}",
        ms(m["e2e"], 0.99),
    )


MEASURED = ("n", "inside SLO (95 %)", "goodput req/s", "TTFT p50/p99 ms", "TPOT p50/p99 ms",
            "E2E p99 ms")  # fmt: skip


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def outcome(folder: Path, key: str) -> dict[str, Any] | None:
    path = folder / "outcomes" / f"{key}.json"
    found = json.loads(path.read_text())["outcome"] if path.is_file() else {}
    return found.get("measurement")


def search_part(folder: Path, report: dict[str, Any], steps: Rows) -> Iterator[str]:
    arm = report["arm"]
    yield f"### Search of {arm} ({folder.name})"
    rows = []
    for probe in report["probes"]:
        m = outcome(folder, probe["key"])
        cells = measured(m) if m is not None else (probe["status"],) + ("-",) * 5
        rows.append((point(probe["values"]), *cells))
    yield table(("point", *MEASURED), rows)
    lives = engine_lives(steps)
    if lives:
        wall_s = sum(
            life[-1]["began_s"] + life[-1]["seconds"] - life[0]["began_s"] for life in lives
        )
        loads = [step for life in lives for step in life if step["step"] == "Measure"]
        offered_s = sum(min(step["seconds"], step["load_s"]) for step in loads)
        drained_s = sum(step["seconds"] for step in loads)
        yield (
            f"{report['load_s']:.0f} s of load for {len(rows)} points. With the rates' probes "
            f"{offered_s:.0f} s of load, {drained_s:.0f} s until drained, of {wall_s:.0f} s wall "
            f"on {len(lives)} engines: {offered_s / wall_s:.0%} and {drained_s / wall_s:.0%}. "
            f"Stopped: {report['stop_reason']}"
        )
    rows = []
    for found in report.get("rates", ()):
        rate = found["rate"]
        if rate is None:
            rows.append((point(found["values"]), "not found", found["note"], "-"))
            continue
        by_multiple = {p["multiple"]: p for p in rate["probes"]}
        sides = [by_multiple.get(rate[name]) for name in ("multiple", "fails_at")]
        rows.append((point(found["values"]), *(rate_side(p) for p in sides), f"{len(by_multiple)}"))
    if rows:
        yield table(("point", "sustains req/s", "fails at req/s", "probes"), rows)


def unfinished_part(folder: Path, arm: str, steps: Rows) -> Iterator[str]:
    """Yield what a search that was cut off has measured, in order."""
    yield f"### Search of {arm}, cut off ({folder.name})"
    rows = []
    for step in steps:
        m = outcome(folder, step["key"]) if step.get("live") else None
        if m is not None:
            name = "({}, {})".format(*(step["live"].get(knob, "default") for knob in KNOBS))
            rows.append((f"{name} {step['load']}", *measured(m)))
    yield table(("point, multiple", *MEASURED), rows)


def engine_lives(steps: Rows) -> list[Rows]:
    """Return the steps of each live engine, from its start to its last load."""
    lives: list[Rows] = []
    for step in steps:
        if step["step"] == "Deploy":
            lives.append([])
        if lives and (step["step"] != "Measure" or step.get("live")):
            lives[-1].append(step)
    for life in lives:
        while life and life[-1]["step"] != "Measure":
            life.pop()
    return [life for life in lives if life]


def rate_side(probe: dict[str, Any] | None) -> str:
    if probe is None or probe["attainment_frac"] is None:
        return "-"
    return (
        f"{probe['offered_req_s']:.2f} (x{probe['multiple']:.2f}: {probe['attainment_frac']:.1%}, "
        f"{probe['low_frac']:.1%}-{probe['high_frac']:.1%}, n={probe['n']})"
    )


def confirm_part(folder: Path) -> Iterator[str]:
    rows = []
    for path in sorted(folder.glob("trials/*/trial.json")):
        trial = json.loads(path.read_text())
        for keyed in trial["measurements"]:
            m = keyed["measurement"]
            values = ", ".join(f"{k}={v}" for k, v in trial["arm"]["values"]["items"])
            name = f"{trial['arm']['name']} {m['load_point']['duration_s']:.0f} s"
            windows = f"{len(m['windows'])}"
            rows.append((name, values or "defaults", windows, *measured(m)))
    if not rows:
        return
    yield f"### Confirmation ({folder.name})"
    yield table(("run", "values", "windows", *MEASURED), rows)
    decision = folder / "report" / "decision.json"
    if decision.is_file():
        found = json.loads(decision.read_text())
        yield f"Verdict: {found['outcome']}"
        yield "\n".join(f"- {r['gate']}: {r['sentence']}" for r in found["reasons"])


def main() -> int:
    """Print every study below the home."""
    parts: list[str] = []
    for folder in sorted(Path(sys.argv[1]).glob("studies/*")):
        log = folder / "steps.jsonl"
        steps = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
        reports = [json.loads(path.read_text()) for path in folder.glob("report/search-*.json")]
        told = {report["arm"]: report for report in reports if "probes" in report}
        for arm in dict.fromkeys(step["arm"] for step in steps if step.get("live")):
            own = [step for step in steps if step["arm"] == arm]
            if arm in told:
                parts += search_part(folder, told[arm], own)
            else:
                parts += unfinished_part(folder, arm, own)
        parts += confirm_part(folder)
    sys.stdout.write("\n\n".join(parts) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
