"""Runs vLLM's torch profiler for a short window and reads the trace it writes.

Whatever goes wrong is a MissingTable with a reason: a profile never fails a trial. The engine
must have been started with ``--profiler-config`` (it adds the two routes used here).
"""

import contextlib
import gzip
import json
import os
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tasks.domain.endpoint import Endpoint
from tasks.domain.kernel_table import (
    CPU_CATEGORIES,
    GPU_CATEGORIES,
    KernelTable,
    MissingTable,
    TraceEvent,
    kernel_table,
)

# Writing the trace of 1.5 s took 13 s on two cores; the reply comes only after it.
STOP_TIMEOUT_S = 300.0
START_TIMEOUT_S = 30.0
# A compressed trace grows some 20 times when read; beyond this the reader would fill the host.
MAX_TRACE_BYTES = 48 * 1024 * 1024
# The API server's own trace has this in its name; kernels are in the Worker's.
_FRONT_END = "async_llm"
_NO_REPLY = "PROFILER_NO_REPLY"


def profile_window(
    endpoint: Endpoint,
    *,
    seconds: float,
    trace_dir: Path,
    load: Callable[[], object] | None = None,
    stop_timeout_s: float = STOP_TIMEOUT_S,
    file_timeout_s: float = 10.0,
) -> KernelTable | MissingTable:
    """Profile the engine for ``seconds`` and return where the time went.

    load: offered in a thread of its own from the start of the window and waited for after it;
    what it raises is raised here, once the profiler has been stopped. Without it somebody else
    must offer load meanwhile. trace_dir: the engine's torch_profiler_dir, on this host.
    """
    before = _traces(trace_dir)
    with httpx.Client(
        base_url=endpoint.url, trust_env=False, timeout=START_TIMEOUT_S, headers=_headers(endpoint)
    ) as client:
        refused = _post(client, "/start_profile", timeout_s=START_TIMEOUT_S)
        if refused is not None:
            if refused.code == _NO_REPLY:  # it may have started all the same: do not leave it on
                _post(client, "/stop_profile", timeout_s=stop_timeout_s)
            return refused
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="profiled-load") as pool:
            offered = None if load is None else pool.submit(load)
            try:
                time.sleep(seconds)
            finally:
                failed = _post(client, "/stop_profile", timeout_s=stop_timeout_s)
            if offered is not None:
                offered.result()
    if failed is not None:
        return failed
    return _newest(trace_dir, before, deadline_s=time.monotonic() + file_timeout_s)


def read_trace(path: Path, *, max_bytes: int = MAX_TRACE_BYTES) -> KernelTable | MissingTable:
    """Return the table of a Chrome trace, gzip or plain; a broken file gives a reason."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            return MissingTable(
                code="TRACE_TOO_LARGE",
                reason=f"{path} has {size} bytes, at most {max_bytes} are read; "
                "profile for fewer seconds",
            )
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        document = json.loads(raw)
        listed = document["traceEvents"] if isinstance(document, dict) else document
        rows = [row for row in listed if row.get("ph") == "X" and row.get("cat") in _WANTED]
        # Relative to the first event: microseconds since boot leave a float no nanoseconds.
        origin = min((float(row["ts"]) for row in rows), default=0.0)
        events = [_event(row, origin) for row in rows]
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        return MissingTable(
            code="PROFILE_CORRUPT", reason=f"{path}: {type(error).__name__}: {error}"
        )
    return kernel_table(events, source=path.name)


_WANTED = GPU_CATEGORIES | CPU_CATEGORIES


def _event(row: dict[str, object], origin_us: float) -> TraceEvent:
    category = str(row["cat"])
    # A GPU's events carry the device as pid and the stream as tid.
    lane = str(row["pid"]) if category in GPU_CATEGORIES else f"{row['pid']}/{row['tid']}"
    return TraceEvent(
        name=str(row["name"]),
        category=category,
        start_s=(float(str(row["ts"])) - origin_us) * 1e-6,
        duration_s=float(str(row["dur"])) * 1e-6,
        lane=lane,
    )


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key = os.environ.get(endpoint.api_key_env) if endpoint.api_key_env else None
    return {"Authorization": f"Bearer {key}"} if key else {}


def _post(client: httpx.Client, route: str, *, timeout_s: float) -> MissingTable | None:
    try:
        reply = client.post(route, timeout=timeout_s)
    except httpx.HTTPError as error:
        reason = f"POST {route}: {type(error).__name__}: {error}"
        return MissingTable(code=_NO_REPLY, reason=reason)
    if reply.status_code == httpx.codes.NOT_FOUND:
        return MissingTable(
            code="PROFILER_NOT_ENABLED",
            reason=f"POST {route} answered 404: the engine was started without --profiler-config "
            '(needed: {"profiler": "torch", "torch_profiler_dir": "<absolute path>"})',
        )
    if not reply.is_success:
        return MissingTable(
            code="PROFILER_FAILED",
            reason=f"POST {route} answered {reply.status_code}: {reply.text[:200]!r}",
        )
    return None


def _traces(trace_dir: Path) -> dict[Path, int]:
    stamps: dict[Path, int] = {}
    for path in [p for pattern in ("*.json.gz", "*.json") for p in trace_dir.rglob(pattern)]:
        with contextlib.suppress(OSError):
            if _FRONT_END not in path.name:
                stamps[path] = path.stat().st_mtime_ns
    return stamps


def _newest(
    trace_dir: Path, before: dict[Path, int], *, deadline_s: float
) -> KernelTable | MissingTable:
    """Wait for a trace that was not there before and read the first rank's newest."""
    while True:
        now = _traces(trace_dir)
        new = {path: stamp for path, stamp in now.items() if before.get(path) != stamp}
        if new:
            first_ranks = [path for path in new if "rank0" in path.name] or list(new)
            return read_trace(max(first_ranks, key=new.__getitem__))
        if time.monotonic() > deadline_s:
            return MissingTable(
                code="TRACE_NOT_FOUND",
                reason=f"the profiler was stopped but no new Worker trace lies in {trace_dir}; "
                "is it the engine's torch_profiler_dir, on this host?",
            )
        time.sleep(0.2)
