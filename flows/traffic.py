"""Reads or draws the traffic that a file names."""

from dataclasses import replace
from pathlib import Path

from tasks.adapters.trace_files.loading import DEFAULT_OPTIONS, load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import Regime
from tasks.domain.site_files import TraceFile, TrafficSource
from tasks.domain.trace import Trace, TraceNotes
from tasks.domain.trace_selection import compress_gaps
from tasks.domain.traffic_model import draw_trace
from tasks.domain.windows import at_rate, cut, off_peak_window, peak_window, thin_by_session

SHOWN_BAD_ROWS = 10
LAST_IN_S = 1e-6  # a window is half open; this keeps the last request in


def traffic_of(source: TrafficSource, *, seed_offset: int = 0) -> Trace:
    """Return one engine's share of a source's traffic.

    seed_offset draws other requests of the same traffic model (a fresh day of it); a trace file
    is what it is.

    Raises:
        TraceError, ConfigError: name the file and what to do.
    """
    if source.model is not None:
        return draw_trace(
            source.model, duration_s=source.draw_s or 600.0, seed=source.seed + seed_offset
        )
    if source.file is None:
        raise ConfigError(f"traffic {source.name!r} names neither a model nor a trace file")
    return _from_file(source, source.file)


def read_part(
    path: Path,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    options: TraceOptions = DEFAULT_OPTIONS,
) -> Trace:
    """Return the requests of a trace from start_s to end_s, all of them where neither is given.

    A ServeGen folder holds rates, not requests: there the part is what is drawn.
    """
    if path.is_dir() and start_s is not None and end_s is not None:
        drawn = replace(options, window_start_s=start_s, window_duration_s=end_s - start_s)
        return load_trace(path, options=drawn)
    trace = load_trace(path, options=options)
    if start_s is None and end_s is None:
        return trace
    return cut(trace, start_s or 0.0, trace.duration_s + LAST_IN_S if end_s is None else end_s)


def replayed_part(path: Path, *, part: tuple[float, float] | None = None) -> Trace:
    """Return a trace file as it is replayed: the part in seconds, long gaps compressed and told.

    Raises:
        TraceError: names the file and what to do.
    """
    start_s, end_s = (None, None) if part is None else part
    return compress_gaps(read_part(path, start_s=start_s, end_s=end_s))


def _from_file(source: TrafficSource, file: TraceFile) -> Trace:
    """Return the part, thinned to one engine's share: 1/N of it, 1/(N - 1) in failover.

    Gaps of more than ten minutes are compressed: a replay of them would only wait.
    """
    failover = source.regime is Regime.FAILOVER
    options = replace(DEFAULT_OPTIONS, timezone=file.timezone)
    trace = read_part(Path(file.path), start_s=file.start_s, end_s=file.end_s, options=options)
    if file.find_s is not None:
        quiet = source.regime is Regime.OFF_PEAK
        found = (off_peak_window if quiet else peak_window)(trace, length_s=file.find_s)
        trace = cut(trace, found.start_s, found.end_s)
    trace = compress_gaps(trace)
    if file.replicas > 1:
        trace = thin_by_session(trace, replicas=file.replicas, seed=source.seed, failover=failover)
    if file.rate_req_s is not None:
        trace = at_rate(trace, file.rate_req_s)
    return trace


def doubt_lines(notes: TraceNotes) -> list[str]:
    """Return what was assumed, dropped, sorted or refused to make a trace, a sentence a line."""
    lines = [f"{code}: {sentence}" for code, sentence in notes.warnings]
    if notes.dropped:
        said = ", ".join(f"{count} {why}" for why, count in notes.dropped)
        lines.append(f"left out on purpose: {said}")
    if notes.out_of_order_rows:
        lines.append(f"{notes.out_of_order_rows} rows were out of order and were sorted")
    if notes.rejected_rows:
        lines.append(f"{notes.rejected_rows} of {notes.rows} rows were rejected:")
        lines += [f"  line {line}: {why}" for line, why in notes.rejected[:SHOWN_BAD_ROWS]]
    return lines
