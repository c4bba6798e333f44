"""``retune trace show`` and ``retune trace drift``."""

from pathlib import Path

from flows.output import number, print_json, print_lines, print_table
from tasks import drift
from tasks.adapters.trace_files.loading import load_trace
from tasks.domain.trace import TraceNotes
from tasks.domain.trace_profile import LengthSummary, profile_trace

DRIFT_SEED = 0
SHOWN_BAD_ROWS = 10


def show_command(file: Path, *, as_json: bool) -> int:
    """Print a trace's profile, its format and every doubt about its rows."""
    trace = load_trace(file)
    profile = profile_trace(trace)
    if as_json:
        print_json({"file": str(file), "sha256": trace.sha256, "notes": trace.notes,
                    "profile": profile})  # fmt: skip
        return 0
    print_lines(
        [
            f"{file}: {trace.notes.format}, {profile.requests:,} requests in "
            f"{profile.duration_s:,.1f} s, sha256 {trace.sha256[:16]}",
            f"rate {number(profile.mean_rate_req_s)} req/s on average, busiest minute "
            f"{number(profile.peak_req_per_min, 0)} requests, gap CV {number(profile.gap_cv)} "
            "(1 is Poisson)",
            f"prefix reuse {_percent(profile.prefix_reuse_frac)}, sessions "
            f"{number(profile.sessions, 0)}",
        ]
    )
    print_table(
        "tokens a request",
        ("", "mean", "p50", "p90", "p99", "max"),
        (_length_row("prompt", profile.prompt), _length_row("output", profile.output)),
    )
    print_lines(_doubts(trace.notes))
    return 0


def drift_command(reference: Path, new: Path, *, as_json: bool) -> int:
    """Print what differs between two traces; 1 where something drifted."""
    report = drift.compare_traffic(load_trace(reference), load_trace(new), seed=DRIFT_SEED)
    if as_json:
        print_json(report)
    else:
        print_table(
            f"{reference.name} against {new.name}",
            ("what", "statistic", "value", "95 % interval", "threshold", "drifted"),
            (
                (
                    finding.name,
                    finding.statistic,
                    number(finding.value, 3),
                    f"{number(finding.low, 3)} to {number(finding.high, 3)}",
                    number(finding.threshold, 3),
                    "yes" if finding.drifted else "no",
                )
                for finding in report.findings
            ),
        )
        print_lines(finding.sentence for finding in report.findings if finding.drifted)
        print_lines(["drifted" if report.drifted else "no drift"])
    return 1 if report.drifted else 0


def _length_row(name: str, lengths: LengthSummary) -> tuple[str, ...]:
    return (
        name,
        number(lengths.mean_tokens, 1),
        number(lengths.p50_tokens, 0),
        number(lengths.p90_tokens, 0),
        number(lengths.p99_tokens, 0),
        number(lengths.max_tokens, 0),
    )


def _percent(fraction: float | None) -> str:
    return "unknown" if fraction is None else f"{fraction:.1%}"


def _doubts(notes: TraceNotes) -> list[str]:
    lines = [f"{code}: {sentence}" for code, sentence in notes.warnings]
    if notes.out_of_order_rows:
        lines.append(f"{notes.out_of_order_rows} rows were out of order and were sorted")
    if notes.rejected_rows:
        lines.append(f"{notes.rejected_rows} of {notes.rows} rows were rejected:")
        lines += [f"  line {line}: {why}" for line, why in notes.rejected[:SHOWN_BAD_ROWS]]
    return lines
