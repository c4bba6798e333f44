"""What vLLM's /metrics says: snapshots, and one table of the names it has used over versions.

Knows names and how the children of one metric are combined; the reduction of a window of
snapshots is in engine_window.py, fetching them is an adapter's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

Labels = tuple[tuple[str, str], ...]
Note = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One line of the exposition: the sample's full name, sorted labels and a finite value."""

    name: str
    labels: Labels
    value: float

    def label(self, key: str) -> str | None:
        """Return the value of a label, or None where the sample does not carry it."""
        return next((value for name, value in self.labels if name == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """All samples of one scrape at ``at_s`` (the scraper's monotonic clock, seconds).

    error: why there are no samples; None for a scrape that worked.
    """

    at_s: float
    samples: tuple[MetricSample, ...] = ()
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the scrape worked and held at least one sample."""
        return self.error is None and bool(self.samples)


class MetricKind(StrEnum):
    """Counter (grows until a restart), gauge (a level) or histogram (its sum and count grow)."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMetric:
    """A quantity and the names under which versions expose it, newest first.

    names: of the exposed samples (counters carry ``_total``), without ``_sum``/``_count`` for
    histograms. Where a version exposes an old and a new name together, the first found is
    taken and never both. optional: its absence is ordinary and is not reported.
    from_zero: children are created at first use, so absence in an earlier scrape means 0.
    """

    key: str
    kind: MetricKind
    names: tuple[str, ...]
    optional: bool = False
    from_zero: bool = False


def _row(
    key: str, kind: MetricKind, *names: str, optional: bool = False, from_zero: bool = False
) -> WantedMetric:
    full = tuple(f"vllm:{name}" for name in names)
    return WantedMetric(key=key, kind=kind, names=full, optional=optional, from_zero=from_zero)


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

# Read in the loggers of vLLM 0.24.0 and 0.32.0; older names from public renames. The old
# time_per_output_token is per token, so its heir is inter_token_latency, not
# request_time_per_output_token (the mean of one request).
WANTED_METRICS: tuple[WantedMetric, ...] = (
    _row("prompt_tokens", _C, "prompt_tokens_total"),
    _row("generation_tokens", _C, "generation_tokens_total"),
    _row("requests_finished", _C, "request_success_total", from_zero=True),
    _row("preemptions", _C, "num_preemptions_total"),
    _row(
        "prefix_queries_tokens",
        _C,
        "prefix_cache_queries_total",
        "gpu_prefix_cache_queries_total",
    ),
    _row("prefix_hits_tokens", _C, "prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    _row("prefix_hit_gauge", _G, "gpu_prefix_cache_hit_rate", optional=True),
    _row("kv_usage", _G, "kv_cache_usage_perc", "gpu_cache_usage_perc"),
    _row("running", _G, "num_requests_running"),
    _row("waiting", _G, "num_requests_waiting"),
    _row("swapped", _G, "num_requests_swapped", optional=True),
    _row("ttft", _H, "time_to_first_token_seconds"),
    _row("itl", _H, "inter_token_latency_seconds", "time_per_output_token_seconds"),
    _row("tpot", _H, "request_time_per_output_token_seconds", optional=True),
    _row("queue_time", _H, "request_queue_time_seconds", "time_in_queue_requests"),
    _row("prefill_time", _H, "request_prefill_time_seconds"),
    _row("decode_time", _H, "request_decode_time_seconds"),
    _row("iteration_tokens", _H, "iteration_tokens_total", optional=True),
)

WANTED_BY_KEY = {wanted.key: wanted for wanted in WANTED_METRICS}
PROCESS_START = "process_start_time_seconds"


def children(
    snapshot: MetricsSnapshot, wanted: WantedMetric, *, suffix: str = "", engine: str | None = None
) -> dict[Labels, float] | None:
    """Return the values of a metric by label set, or None where no name of it is exposed.

    engine: only the children with that ``engine`` label; a sample without one belongs to "0".
    """
    for name in wanted.names:
        found = {
            sample.labels: sample.value
            for sample in snapshot.samples
            if sample.name == name + suffix
            and (engine is None or (sample.label("engine") or "0") == engine)
        }
        if found:
            return found
    return None


def engine_labels(snapshots: Iterable[MetricsSnapshot]) -> tuple[str, ...]:
    """Return the engines that the snapshots speak of, sorted; "0" where there is no label."""
    seen: set[str] = set()
    names = WANTED_BY_KEY["running"].names + WANTED_BY_KEY["generation_tokens"].names
    for snapshot in snapshots:
        seen |= {s.label("engine") or "0" for s in snapshot.samples if s.name in names}
    return tuple(sorted(seen, key=lambda label: (len(label), label)))


def stale_metrics(first: MetricsSnapshot, *, requests_sent: int) -> Note | None:
    """Return a STALE_METRICS note if counters were not 0 before our first request.

    Somebody else uses this engine, or a PROMETHEUS_MULTIPROC_DIR kept an earlier run's files:
    refuse to measure, or take deltas from this baseline and tag the run. None if all is well
    or if we had sent requests ourselves.
    """
    if requests_sent > 0 or not first.ok:
        return None
    for key in ("generation_tokens", "prompt_tokens"):
        found = children(first, WANTED_BY_KEY[key])
        if found and sum(found.values()) > 0:
            return (
                "STALE_METRICS",
                f"{key}={sum(found.values()):.0f} before the first request of ours, needed 0: "
                "another client uses the engine or PROMETHEUS_MULTIPROC_DIR holds files of an "
                "earlier run; only deltas from this baseline may be used",
            )
    return None
