"""Profiler events reduced to a table: where the time of a window went.

GPU kernels of several streams overlap, so busy time is the union of their intervals, never the
sum. CPU operators nest, so a row holds self time: its duration less its children's.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TOP_ROWS = 20
CLOCK_S = 5e-9
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})

# First match wins: (part of the lower-case name, category).
NAME_CATEGORIES: tuple[tuple[str, str], ...] = (
    ("execute_context", "framework"),
    ("execute_new", "framework"),
    ("nccl", "communication"),
    ("all_reduce", "communication"),
    ("allreduce", "communication"),
    ("kv_cache_update", "kv cache"),
    ("reshape_and_cache", "kv cache"),
    ("slot_mapping", "kv cache"),
    ("marlin", "matmul"),
    ("flash", "attention"),
    ("attention", "attention"),
    ("attn", "attention"),
    ("fmha", "attention"),
    ("gemm", "matmul"),
    ("gemv", "matmul"),
    ("matmul", "matmul"),
    ("cutlass", "matmul"),
    ("nvjet", "matmul"),
    ("_mm", "matmul"),
    ("::mm", "matmul"),
    ("linear", "matmul"),
    ("quant", "quantize"),
    ("argmax", "sampling"),
    ("softmax", "sampling"),
    ("sampl", "sampling"),
    ("topk", "sampling"),
    ("rotary", "elementwise"),
    ("norm", "elementwise"),
    ("silu", "elementwise"),
    ("elementwise", "elementwise"),
    ("aten::add", "elementwise"),
    ("aten::mul", "elementwise"),
    ("aten::div", "elementwise"),
    ("aten::pow", "elementwise"),
    ("aten::sum", "elementwise"),
    ("aten::mean", "elementwise"),
    ("memcpy", "memory copy"),
    ("memset", "memory copy"),
    ("copy", "memory copy"),
    ("aten::view", "shape"),
    ("aten::reshape", "shape"),
    ("aten::slice", "shape"),
    ("aten::as_strided", "shape"),
    ("aten::empty", "shape"),
    ("aten::chunk", "shape"),
    ("aten::split", "shape"),
    ("aten::narrow", "shape"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One interval of a profile. lane: device for a GPU, thread for a CPU event."""

    name: str
    category: str
    start_s: float
    duration_s: float
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel or operator; share_frac is of the table's total self time."""

    name: str
    category: str
    calls: int
    self_s: float
    share_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """The largest rows of a window, by self time.

    kind: "gpu" or "cpu". total_s: self time of all rows, the ones not kept included.
    busy_s: union of the intervals, averaged over lanes of a GPU, added over threads of a CPU.
    span_s: first start to last end. busy_frac = busy_s / span_s for a GPU; None for a CPU,
    where operators cover only part of what a process does. categories: (name, share_frac).
    """

    kind: str
    rows: tuple[KernelRow, ...]
    total_s: float
    busy_s: float
    span_s: float
    busy_frac: float | None
    events: int
    categories: tuple[tuple[str, float], ...]
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTable:
    """Why there is no table. A missing profile never fails a trial.

    code: PROFILER_NOT_ENABLED, PROFILER_FAILED, PROFILER_NO_REPLY, TRACE_NOT_FOUND,
    TRACE_TOO_LARGE, PROFILE_CORRUPT, NO_KERNEL_DATA or UNKNOWN_SCHEMA.
    """

    code: str
    reason: str


def kernel_table(
    events: Iterable[TraceEvent], *, top: int = TOP_ROWS, source: str = ""
) -> KernelTable | MissingTable:
    """Reduce events to the ``top`` rows: GPU kernels where there are any, else CPU operators."""
    listed = list(events)
    on_gpu = [event for event in listed if event.category in GPU_CATEGORIES]
    if on_gpu:
        own = [event.duration_s for event in on_gpu]
        return _table("gpu", on_gpu, own, [None] * len(own), top=top, source=source)
    on_cpu = [event for event in listed if event.category in CPU_CATEGORIES]
    if on_cpu:
        own, parents = nested_times(on_cpu)
        return _table("cpu", on_cpu, own, parents, top=top, source=source)
    return MissingTable(
        code="NO_KERNEL_DATA",
        reason=f"{len(listed)} events hold neither kernels nor operators; "
        "check that load was offered inside the window",
    )


def category_of(name: str) -> str:
    """Return the category of a kernel's or operator's name, "other" where no row matches."""
    lower = name.lower()
    return next((category for part, category in NAME_CATEGORIES if part in lower), "other")


def union_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one (start, end) interval."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def nested_times(events: Sequence[TraceEvent]) -> tuple[list[float], list[int | None]]:
    """Return each event's self time (its duration less its direct children's) and its parent.

    An event is a child if it lies inside its parent, but for the clock's rounding of a few ns.
    """
    own = [event.duration_s for event in events]
    parents: list[int | None] = [None] * len(events)
    order = sorted(
        range(len(events)), key=lambda i: (events[i].lane, events[i].start_s, -events[i].duration_s)
    )
    stack: list[int] = []
    for i in order:
        while stack and not _holds(events[stack[-1]], events[i]):
            stack.pop()
        if stack:
            parents[i] = stack[-1]
            own[stack[-1]] -= events[i].duration_s
        stack.append(i)
    return [max(0.0, value) for value in own], parents


def _holds(parent: TraceEvent, child: TraceEvent) -> bool:
    end = child.start_s + child.duration_s
    return parent.lane == child.lane and end <= parent.start_s + parent.duration_s + CLOCK_S


def _table(
    kind: str,
    events: Sequence[TraceEvent],
    own: Sequence[float],
    parents: Sequence[int | None],
    *,
    top: int,
    source: str,
) -> KernelTable:
    calls: dict[str, int] = defaultdict(int)
    spent: dict[str, float] = defaultdict(float)
    for event, seconds, parent in zip(events, own, parents, strict=True):
        # As torch's own table does: an operator that only forwards to its like is one call.
        calls[event.name] += parent is None or events[parent].name != event.name
        spent[event.name] += seconds
    total = sum(spent.values())
    ranked = sorted(spent, key=lambda name: (-spent[name], name))
    shares: dict[str, float] = defaultdict(float)
    for name in ranked:
        shares[category_of(name)] += spent[name] / total if total > 0 else 0.0
    busy, span = _busy_s(events, kind), _span_s(events)
    return KernelTable(
        kind=kind,
        rows=tuple(
            KernelRow(
                name=name,
                category=category_of(name),
                calls=calls[name],
                self_s=spent[name],
                share_frac=spent[name] / total if total > 0 else 0.0,
            )
            for name in ranked[:top]
        ),
        total_s=total,
        busy_s=busy,
        span_s=span,
        busy_frac=busy / span if kind == "gpu" and span > 0 else None,
        events=len(events),
        categories=tuple(sorted(shares.items(), key=lambda item: (-item[1], item[0]))),
        source=source,
    )


def _busy_s(events: Sequence[TraceEvent], kind: str) -> float:
    lanes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        lanes[event.lane].append((event.start_s, event.start_s + event.duration_s))
    busy = sum(union_s(intervals) for intervals in lanes.values())
    return busy / len(lanes) if kind == "gpu" else busy


def _span_s(events: Sequence[TraceEvent]) -> float:
    start = min(event.start_s for event in events)
    return max(event.start_s + event.duration_s for event in events) - start
