"""A measurement: what one load point gave, reduced from the records of its requests.

Every number can be computed again from the records; FORMULAS (measurement_metrics.py) says how.
"Not measured" is None: a run without a success has no latency at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.domain.load_point import LoadPoint
from tasks.domain.measurement_cut import RecordCut, drift_frac, token_gaps
from tasks.domain.measurement_windows import (
    WindowResult,
    in_flight,
    window_edges,
    window_results,
)
from tasks.domain.percentiles import Latency, design_effect, latency_of, wilson_interval
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.slo import Slo
from tasks.domain.validity import Flag, ServerFacts, ValidityFacts, judge_validity

MIN_WINDOWS = 6  # fewer windows say nothing about how windows differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One load point as it went. Rates per second of the window, shares 0..1, times in seconds.

    window_s: offered seconds after the warm-up. n_requests: requests due in it; errors: (code,
    count) of the failed ones, sorted. partial_tokens: tokens of failed requests, in no rate.
    attainment_*: share of all requests that kept the SLO with a 95 % Wilson interval;
    attainment_method says on how many independent requests. *_drift_frac: tokens by the server's
    usage / tokens asked for - 1. Latencies are of successful requests, from the due time, but
    ttft_from_send; itl counts tokens. hit_frac: prefix-cache hits of the window, of
    trace_reuse_frac that the trace itself would allow.
    """

    load_point: LoadPoint
    slo: Slo
    client: ClientReport
    window_s: float
    n_requests: int
    n_ok: int
    errors: tuple[tuple[str, int], ...]
    error_rate_frac: float
    offered_req_s: float
    achieved_req_s: float
    output_tok_s: float
    input_tok_s: float
    partial_tokens: int
    n_good: int
    goodput_req_s: float
    attainment_frac: float
    attainment_low_frac: float
    attainment_high_frac: float
    attainment_method: str
    ttft: Latency
    ttft_from_send: Latency
    tpot: Latency
    itl: Latency
    e2e: Latency
    mean_concurrency: float
    prompt_drift_frac: float | None
    completion_drift_frac: float | None
    windows: tuple[WindowResult, ...]
    flags: tuple[Flag, ...]
    hit_frac: float | None = None
    trace_reuse_frac: float | None = None
    schedule_sha256: str | None = None

    @property
    def invalid(self) -> bool:
        """Tell whether a flag forbids believing this measurement."""
        return any(flag.invalid for flag in self.flags)

    @property
    def slo_ok(self) -> bool:
        """Tell whether enough of all requests kept the SLO."""
        return self.attainment_frac >= self.slo.attainment_frac

    @property
    def e2e_tail_s(self) -> float | None:
        """E2E p99, or the maximum where the sample does not cover p99."""
        p99 = self.e2e.p(0.99).value_s
        return self.e2e.max_s if p99 is None else p99

    def with_flags(self, *flags: Flag) -> "Measurement":
        """Return this measurement with more flags, for facts that were learnt later."""
        return replace(self, flags=(*self.flags, *flags))


def reduce_records(
    records: Sequence[RequestRecord],
    *,
    load_point: LoadPoint,
    schedule_duration_s: float,
    slo: Slo,
    client: ClientReport,
    warmup_s: float = 0.0,
    window_s: float = 30.0,
    hit_frac: float | None = None,
    server: ServerFacts | None = None,
    schedule_sha256: str | None = None,
) -> Measurement:
    """Reduce the records of one load point; requests due before ``warmup_s`` are left out.

    ``server`` holds what /metrics said; ``hit_frac`` alone may stand in for it.

    Raises:
        MeasurementInvalidError: where no request was due after the warm-up.
    """
    cut = RecordCut.of(records, slo=slo, start_s=warmup_s, end_s=schedule_duration_s)
    facts = server if server is not None else ServerFacts(hit_frac=hit_frac)
    measurement = replace(
        _measurement(cut, load_point, slo, client, window_edges(cut.start_s, cut.end_s, window_s)),
        hit_frac=facts.hit_frac,
        trace_reuse_frac=facts.expected_hit_frac,
        schedule_sha256=schedule_sha256,
    )
    return replace(measurement, flags=judge_validity(_facts(measurement, facts)))


def _measurement(
    cut: RecordCut,
    load_point: LoadPoint,
    slo: Slo,
    client: ClientReport,
    edges: Sequence[tuple[float, float]],
) -> Measurement:
    n, ok, span = len(cut.measured), cut.ok, cut.end_s - cut.start_s
    low, high, method = _attainment_interval(cut, edges)
    return Measurement(
        load_point=load_point,
        slo=slo,
        client=client,
        window_s=span,
        n_requests=n,
        n_ok=len(ok),
        errors=cut.errors,
        error_rate_frac=(n - len(ok)) / n,
        offered_req_s=n / span,
        achieved_req_s=cut.ended_inside / span,
        output_tok_s=cut.output_tokens / span,
        input_tok_s=cut.input_tokens / span,
        partial_tokens=sum(r.tokens for r in cut.measured if not r.ok),
        n_good=sum(cut.good),
        goodput_req_s=sum(cut.good) / span,
        attainment_frac=sum(cut.good) / n,
        attainment_low_frac=low,
        attainment_high_frac=high,
        attainment_method=method,
        ttft=_latency("ttft", [r.ttft_s for r in ok]),
        ttft_from_send=_latency("ttft_from_send", [r.ttft_from_send_s for r in ok]),
        tpot=_latency("tpot", [r.tpot_s for r in ok]),
        itl=token_gaps(ok),
        e2e=_latency("e2e", [r.e2e_s for r in ok]),
        mean_concurrency=in_flight(cut.records, since_send=True).mean(cut.start_s, cut.end_s),
        prompt_drift_frac=drift_frac([(r.asked_prompt_tokens, r.prompt_tokens) for r in ok]),
        completion_drift_frac=drift_frac(
            [(r.asked_output_tokens, r.completion_tokens) for r in ok]
        ),
        windows=window_results(cut.measured, cut.good, spans=cut.spans, edges=edges),
        flags=(),
    )


def _facts(m: Measurement, server: ServerFacts) -> ValidityFacts:
    return ValidityFacts(
        load_point=m.load_point,
        client=m.client,
        server=server,
        n_requests=m.n_requests,
        n_ok=m.n_ok,
        errors=m.errors,
        ttft_p50_s=m.ttft.p(0.5).value_s,
        prompt_drift_frac=m.prompt_drift_frac,
        completion_drift_frac=m.completion_drift_frac,
        e2e_tail_s=m.e2e_tail_s,
        window_s=m.windows[0].end_s - m.windows[0].start_s,
        n_windows=len(m.windows),
        n_windows_diverged=sum(w.diverged for w in m.windows),
    )


def _latency(name: str, seconds: Sequence[float | None]) -> Latency:
    return latency_of(name, [value for value in seconds if value is not None])


def _attainment_interval(
    cut: RecordCut, edges: Sequence[tuple[float, float]]
) -> tuple[float, float, str]:
    """Return low, high and the method: Wilson on the requests that the windows make independent."""
    good, n = cut.good, len(cut.measured)
    if len(edges) < MIN_WINDOWS:
        low, high = wilson_interval(sum(good), n)
        text = f"Wilson, n={n} requests taken as independent ({len(edges)} windows are too few)"
        return low, high, text
    starts = [start for start, _ in edges]
    ids = np.searchsorted(starts, [r.due_s for r in cut.measured], side="right")
    worth = n / design_effect(np.array(good, dtype=bool), ids.astype(np.int64))
    low, high = wilson_interval(sum(good), n, n_effective=worth)
    return low, high, f"Wilson, n={n} requests in {len(edges)} windows, worth {worth:.0f}"
