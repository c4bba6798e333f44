"""Reads or draws the traffic that a file names."""

from pathlib import Path

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import ConfigError
from tasks.domain.site_files import TraceFile, TrafficSource
from tasks.domain.trace import Trace
from tasks.domain.traffic_model import draw_trace
from tasks.domain.windows import cut, thin_by_session


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
    return _from_file(source.file, seed=source.seed)


def _from_file(file: TraceFile, *, seed: int) -> Trace:
    trace = load_trace(Path(file.path), options=TraceOptions(timezone=file.timezone))
    if file.start_s is not None or file.end_s is not None:
        trace = cut(trace, file.start_s or 0.0, file.end_s or trace.duration_s)
    if file.replicas > 1:
        trace = thin_by_session(trace, replicas=file.replicas, seed=seed)
    return trace
