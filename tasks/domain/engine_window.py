"""A window of /metrics snapshots reduced to deltas, means and levels.

Never turns an absent metric into 0 and never gives a negative count: a counter that went
backwards means that the engine restarted inside the window, and then no delta is believed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tasks.domain.engine_metrics import (
    PROCESS_START,
    WANTED_BY_KEY,
    WANTED_METRICS,
    Labels,
    MetricKind,
    MetricsSnapshot,
    Note,
    WantedMetric,
    children,
    engine_labels,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWindow:
    """What one engine (or all together) did between the first and the last good scrape.

    Token and request counts are deltas over ``duration_s``; they are summed over engines.
    kv_usage_mean_frac averages engines, p95 and max take the fullest one. prefix_hit_frac is
    hits/queries of this window in tokens, None for 0 queries (the log line's rate covers the
    last 1000 requests: another quantity). itl is per token, tpot the mean of per-request means.
    restarted: a counter went backwards, so every delta is None and the trial is invalid.
    notes: (code, sentence), codes MISSING_METRIC, COUNTER_RESET, SCRAPE_ERRORS, WINDOW_CUT,
    NO_SNAPSHOTS, HIT_RATE_NOT_WINDOWED.
    """

    duration_s: float
    snapshots: int
    engine: str | None = None
    engines: int = 1
    restarted: bool = False
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests_finished: float | None = None
    preemptions: float | None = None
    prefix_queries_tokens: float | None = None
    prefix_hits_tokens: float | None = None
    prefix_hit_frac: float | None = None
    kv_usage_mean_frac: float | None = None
    kv_usage_p95_frac: float | None = None
    kv_usage_max_frac: float | None = None
    running_mean: float | None = None
    running_max: float | None = None
    waiting_mean: float | None = None
    waiting_max: float | None = None
    swapped_max: float | None = None
    ttft_mean_s: float | None = None
    itl_mean_s: float | None = None
    tpot_mean_s: float | None = None
    queue_time_mean_s: float | None = None
    prefill_time_mean_s: float | None = None
    decode_time_mean_s: float | None = None
    iteration_tokens_mean: float | None = None
    notes: tuple[Note, ...] = ()

    @property
    def generation_tok_s(self) -> float | None:
        """Generated tokens per second of the window."""
        if self.generation_tokens is None or self.duration_s <= 0:
            return None
        return self.generation_tokens / self.duration_s


def engine_window(
    snapshots: Sequence[MetricsSnapshot], *, engine: str | None = None
) -> EngineWindow:
    """Reduce snapshots in time order to one window.

    engine: the ``engine`` label to look at; None takes all engines behind the URL together.
    Needs two good scrapes for deltas; with one only the levels are known.
    """
    good = [snapshot for snapshot in snapshots if snapshot.ok]
    notes = _scrape_notes(snapshots)
    if not good:
        return EngineWindow(duration_s=0.0, snapshots=0, engine=engine, notes=notes)
    reset = _reset_note(good, engine)
    deltas = _Deltas(first=good[0], last=good[-1], engine=engine, usable=reset is None)
    levels = {key: _levels(good, key, engine) for key in ("kv_usage", "running", "waiting")}
    queries, hits = deltas.counter("prefix_queries_tokens"), deltas.counter("prefix_hits_tokens")
    hit_frac, hit_notes = _hit_frac(good[-1], queries, hits, engine)
    kv = _levels(good, "kv_usage", engine, mean_over_engines=True)
    swapped = _levels(good, "swapped", engine)
    return EngineWindow(
        duration_s=good[-1].at_s - good[0].at_s,
        snapshots=len(good),
        engine=engine,
        engines=1 if engine is not None else max(1, len(engine_labels(good))),
        restarted=reset is not None,
        prompt_tokens=deltas.counter("prompt_tokens"),
        generation_tokens=deltas.counter("generation_tokens"),
        requests_finished=deltas.counter("requests_finished"),
        preemptions=deltas.counter("preemptions"),
        prefix_queries_tokens=queries,
        prefix_hits_tokens=hits,
        prefix_hit_frac=hit_frac,
        kv_usage_mean_frac=float(np.mean(kv)) if kv else None,
        kv_usage_p95_frac=_p95(levels["kv_usage"]),
        kv_usage_max_frac=max(levels["kv_usage"], default=None),
        running_mean=_mean(levels["running"]),
        running_max=max(levels["running"], default=None),
        waiting_mean=_mean(levels["waiting"]),
        waiting_max=max(levels["waiting"], default=None),
        swapped_max=max(swapped, default=None),
        ttft_mean_s=deltas.mean("ttft"),
        itl_mean_s=deltas.mean("itl"),
        tpot_mean_s=deltas.mean("tpot"),
        queue_time_mean_s=deltas.mean("queue_time"),
        prefill_time_mean_s=deltas.mean("prefill_time"),
        decode_time_mean_s=deltas.mean("decode_time"),
        iteration_tokens_mean=deltas.mean("iteration_tokens"),
        notes=(
            *notes,
            *(() if reset is None else (reset,)),
            *_missing_notes(good[-1], engine, has_old_hit_rate=bool(hit_notes)),
            *hit_notes,
        ),
    )


def engine_windows(snapshots: Sequence[MetricsSnapshot]) -> tuple[EngineWindow, ...]:
    """Return one window an engine label, for data-parallel servers."""
    return tuple(engine_window(snapshots, engine=label) for label in engine_labels(snapshots))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deltas:
    """Differences between two scrapes; all None when a restart lies between them."""

    first: MetricsSnapshot
    last: MetricsSnapshot
    engine: str | None
    usable: bool

    def counter(self, key: str, suffix: str = "") -> float | None:
        wanted = WANTED_BY_KEY[key]
        if not self.usable or self.first is self.last:
            return None
        before = children(self.first, wanted, suffix=suffix, engine=self.engine)
        after = children(self.last, wanted, suffix=suffix, engine=self.engine)
        if after is None or (before is None and not wanted.from_zero):
            return None
        return sum(after.values()) - sum((before or {}).values())

    def mean(self, key: str) -> float | None:
        """Return delta(sum)/delta(count), None for no observation in the window."""
        total, count = self.counter(key, "_sum"), self.counter(key, "_count")
        return total / count if total is not None and count else None


def _growing(snapshot: MetricsSnapshot, engine: str | None) -> dict[tuple[str, Labels], float]:
    values: dict[tuple[str, Labels], float] = {}
    for wanted in WANTED_METRICS:
        suffix = {MetricKind.COUNTER: "", MetricKind.HISTOGRAM: "_count"}.get(wanted.kind)
        if suffix is not None:
            found = children(snapshot, wanted, suffix=suffix, engine=engine) or {}
            values |= {(wanted.key, labels): value for labels, value in found.items()}
    return values


def _reset_note(good: Sequence[MetricsSnapshot], engine: str | None) -> Note | None:
    """Look between every two scrapes: a counter may fall and have overtaken itself by the end."""
    code = "COUNTER_RESET"
    advice = "the engine restarted inside the window; the measurement is invalid, repeat it"
    grown = [_growing(snapshot, engine) for snapshot in good]
    for (earlier, before), (later, now) in pairwise(zip(good, grown, strict=True)):
        started = {s.value for s in earlier.samples if s.name == PROCESS_START}
        restarted = {s.value for s in later.samples if s.name == PROCESS_START}
        if started and restarted and started != restarted:
            return code, f"{PROCESS_START} changed at {later.at_s:.1f} s: {advice}"
        for (key, labels), value in before.items():
            if now and now.get((key, labels), 0.0) < value:
                seen = now.get((key, labels), "absent")
                return (
                    code,
                    f"{key} went from {value:.0f} to {seen} at {later.at_s:.1f} s: {advice}",
                )
    return None


def _levels(
    good: Sequence[MetricsSnapshot],
    key: str,
    engine: str | None,
    *,
    mean_over_engines: bool = False,
) -> list[float]:
    """Return the level at each scrape: a share's fullest (or mean) engine, a count's sum."""
    levels: list[float] = []
    for snapshot in good:
        found = children(snapshot, WANTED_BY_KEY[key], engine=engine)
        if found is None:
            continue
        values = list(found.values())
        if mean_over_engines:
            levels.append(sum(values) / len(values))
        else:
            levels.append(max(values) if key == "kv_usage" else sum(values))
    return levels


def _hit_frac(
    last: MetricsSnapshot, queries: float | None, hits: float | None, engine: str | None
) -> tuple[float | None, tuple[Note, ...]]:
    if queries is not None and hits is not None:
        return (hits / queries if queries > 0 else None), ()
    gauge = children(last, WANTED_BY_KEY["prefix_hit_gauge"], engine=engine)
    if gauge is None:
        return None, ()
    value = sum(gauge.values()) / len(gauge)
    note = "this engine exposes only a hit rate since its start; it is not the window's own"
    # V0 answers -1 while prefix caching is off: that is not a rate.
    return (value if value >= 0 else None), (("HIT_RATE_NOT_WINDOWED", note),)


def _missing_notes(
    last: MetricsSnapshot, engine: str | None, *, has_old_hit_rate: bool
) -> tuple[Note, ...]:
    def absent(wanted: WantedMetric) -> bool:
        suffix = "_count" if wanted.kind is MetricKind.HISTOGRAM else ""
        return children(last, wanted, suffix=suffix, engine=engine) is None

    return tuple(
        ("MISSING_METRIC", f"{wanted.key} is not exposed; tried {', '.join(wanted.names)}")
        for wanted in WANTED_METRICS
        if not wanted.optional
        and not (has_old_hit_rate and wanted.key.startswith("prefix_"))
        and absent(wanted)
    )


def _scrape_notes(snapshots: Sequence[MetricsSnapshot]) -> tuple[Note, ...]:
    bad = [s for s in snapshots if not s.ok]
    good = [s for s in snapshots if s.ok]
    if not good:
        why = bad[-1].error or "the reply held no sample" if bad else "nothing was scraped"
        return (("NO_SNAPSHOTS", f"no usable scrape of {len(bad)}: {why}"),)
    notes: list[Note] = []
    if bad:
        why = bad[-1].error or "the reply held no sample"
        notes.append(("SCRAPE_ERRORS", f"{len(bad)} of {len(snapshots)} scrapes failed: {why}"))
    if not snapshots[-1].ok:
        lost = snapshots[-1].at_s - good[-1].at_s
        notes.append(("WINDOW_CUT", f"the last scrapes failed: the window ends {lost:.1f} s early"))
    return tuple(notes)


def _mean(levels: Sequence[float]) -> float | None:
    return float(np.mean(levels)) if levels else None


def _p95(levels: Sequence[float]) -> float | None:
    return float(np.quantile(levels, 0.95)) if levels else None
