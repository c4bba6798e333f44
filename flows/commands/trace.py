"""``retune trace show`` and ``retune trace drift``."""

import math
from contextlib import suppress
from pathlib import Path

from flows.output import number, print_json, print_lines, print_table
from flows.traffic import doubt_lines, read_part
from tasks import drift
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.drift import CONFIDENCE_PCT, DriftFinding
from tasks.domain.errors import ConfigError, TraceError
from tasks.domain.trace import Trace
from tasks.domain.trace_profile import LengthSummary, profile_trace
from tasks.domain.windows import Window, off_peak_window, peak_window

DRIFT_SEED = 0
REGIME_S = 600.0
INTERVAL = f"{CONFIDENCE_PCT:g} % interval"


def show_command(file: Path, *, window: str | None, options: TraceOptions, as_json: bool) -> int:
    """Print a trace's profile, its format, peak and off-peak, and every doubt about its rows."""
    trace = _part(file, window, options)
    profile = profile_trace(trace)
    regimes = _regimes(trace)
    if as_json:
        print_json({"file": str(file), "sha256": trace.sha256, "notes": trace.notes,
                    "profile": profile, "regimes": dict(regimes)})  # fmt: skip
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
    print_lines(
        f"{name} {REGIME_S:g} s: from {found.start_s:.0f} s, {found.rate_req_s:.2f} req/s "
        f"({found.rule})"
        for name, found in regimes
    )
    print_lines(doubt_lines(trace.notes))
    return 0


def drift_command(
    reference: Path,
    new: Path,
    *,
    windows: tuple[str | None, str | None],
    options: TraceOptions,
    as_json: bool,
) -> int:
    """Print what differs between two traces; 1 where something drifted."""
    report = drift.compare_traffic(
        _part(reference, windows[0], options), _part(new, windows[1], options), seed=DRIFT_SEED
    )
    if as_json:
        print_json(report)
    else:
        print_table(
            f"{reference.name} against {new.name}",
            ("what", "statistic", "value", INTERVAL, "threshold", "visible from", "drifted"),
            (
                (
                    finding.name,
                    finding.statistic,
                    number(finding.value, 3),
                    f"{number(finding.low, 3)} to {number(finding.high, 3)}",
                    number(finding.threshold, 3),
                    "-" if finding.visible is None else f"x{finding.visible:.2f}",
                    "yes" if finding.drifted else "no",
                )
                for finding in report.findings
            ),
        )
        print_lines(
            finding.sentence for finding in report.findings if finding.drifted or _blind(finding)
        )
        print_lines(["drifted" if report.drifted else "no drift"])
    return 1 if report.drifted else 0


def _blind(finding: DriftFinding) -> bool:
    """Tell whether a growth that would matter could not have been seen."""
    return finding.visible is not None and finding.visible > finding.threshold**2


def trace_options(
    *, timezone: str | None, prompt_tokens: int | None, output_tokens: int | None
) -> TraceOptions:
    """Return what the command line says of a file that cannot say it itself."""
    return TraceOptions(timezone=timezone, prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def parse_window(text: str) -> tuple[float, float]:
    """Return start and end in seconds of ``64800:66600``.

    Raises:
        ConfigError: for anything else.
    """
    start, _, end = text.partition(":")
    try:
        edges = float(start), float(end)
    except ValueError:
        edges = (math.nan, math.nan)
    if not 0 <= edges[0] < edges[1] < math.inf:
        raise ConfigError(
            f"window {text!r} is not understood; needed START:END in seconds from the trace's "
            "start, for example 64800:66600"
        )
    return edges


def _part(file: Path, window: str | None, options: TraceOptions) -> Trace:
    start_s, end_s = (None, None) if window is None else parse_window(window)
    return read_part(file, start_s=start_s, end_s=end_s, options=options)


def _regimes(trace: Trace) -> list[tuple[str, Window]]:
    """Return the trace's busiest and quietest stretch, none where it is too short to have both."""
    if trace.duration_s < 2 * REGIME_S:
        return []
    found = [("peak", peak_window(trace, length_s=REGIME_S))]
    with suppress(TraceError):  # idle wherever it is cut: there is no off-peak to tune for
        found.append(("off-peak", off_peak_window(trace, length_s=REGIME_S)))
    return found


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
