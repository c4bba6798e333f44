"""Loads offered to one endpoint that somebody else runs: a rate, a curve, the sustainable rate."""

import uuid
from dataclasses import dataclass
from pathlib import Path

from flows.progress import Reporter
from tasks import benchmark
from tasks.adapters.load_client.request_body import Decode
from tasks.domain.concurrency_curve import ConcurrencyCurve, curve_points, next_curve_concurrency
from tasks.domain.endpoint import Endpoint
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.schedule import RequestSchedule
from tasks.domain.scheduling import build_schedule
from tasks.domain.slo import Slo
from tasks.domain.sustainable_rate import SustainableRate, rate_result, search_sustainable_rate
from tasks.domain.trace import Trace
from tasks.domain.validity import client_was_late

SEED = 0
WINDOW_S = 30.0
SHAPES_S = 600.0
CURVE_POINTS = 16
SEARCH_SPAN = 8.0  # the sustainable rate is looked for from an eighth of the rate to eight times it


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One endpoint, one traffic, and where the evidence goes.

    workers: client processes. extensions: vLLM's own request fields. decode: for chats only.
    """

    endpoint: Endpoint
    trace: Trace
    slo: Slo
    folder: Path
    reporter: Reporter
    vocabulary: PromptVocabulary
    workers: int = 1
    extensions: bool = True
    decode: Decode | None = None

    @property
    def own_rate_req_s(self) -> float:
        """Return the traffic's own rate, gaps / duration; 1 where it has none."""
        gaps, duration_s = len(self.trace) - 1, self.trace.duration_s
        return gaps / duration_s if duration_s > 0 else 1.0

    def at_scale(self, scale: float, duration_s: float) -> Measurement:
        """Measure one multiple of the traffic's rate."""
        return self._measure(_open(scale, duration_s))

    def sustainable(self, start: float, *, probe_s: float, max_probes: int) -> SustainableRate:
        """Search the largest multiple of the traffic's rate that keeps the SLO."""
        search = search_sustainable_rate(
            start=start,
            lowest=start / SEARCH_SPAN,
            highest=start * SEARCH_SPAN,
            max_probes=max_probes,
        )
        probe = next(search)
        while True:
            point = _open(probe.multiple, probe_s)
            measured = self._measure(point, stop_when_diverged=probe.stop_when_diverged)
            result = rate_result(measured)
            verdict = "diverges" if result.diverged else f"{measured.attainment_frac:.1%} inside"
            self.reporter.line(
                f"probe x{probe.multiple:.3g}: {measured.offered_req_s:.2f} req/s, {verdict} "
                f"(n={measured.n_requests})"
            )
            try:
                probe = search.send(result)
            except StopIteration as found:
                rate: SustainableRate = found.value
                return rate

    def curve(
        self, limit: int, *, duration_s: float
    ) -> tuple[tuple[Measurement, ...], ConcurrencyCurve]:
        """Measure the concurrency curve up to ``limit`` and return its points and its knee."""
        measured: list[Measurement] = []
        while len(measured) < CURVE_POINTS:
            concurrency = next_curve_concurrency(measured, limit=limit)
            if concurrency is None:
                break
            point = LoadPoint(kind=LoadKind.CLOSED, concurrency=concurrency, duration_s=duration_s)
            measured.append(self._measure(point))
        return tuple(measured), curve_points(measured)

    def _measure(self, point: LoadPoint, *, stop_when_diverged: bool = False) -> Measurement:
        """Measure a load; once more where nothing but the client's lateness spoilt it."""
        measured = self._measured(point, stop_when_diverged=stop_when_diverged)
        if not client_was_late(measured.flags):
            return measured
        self.reporter.line(f"load {point.name}: this client was late; measuring once more")
        return self._measured(point, stop_when_diverged=stop_when_diverged)

    def _measured(self, point: LoadPoint, *, stop_when_diverged: bool) -> Measurement:
        measurement, _, _ = benchmark.measure_load(
            self.endpoint,
            benchmark.Load(
                point=point,
                schedule=self._schedule(point),
                vocabulary=self.vocabulary,
                salt=uuid.uuid4().hex,
                workers=self.workers,
                extensions=self.extensions,
                decode=self.decode,
            ),
            slo=self.slo,
            window_s=min(WINDOW_S, point.duration_s),
            evidence_dir=self.folder / point.name,
            on_progress=lambda p: self.reporter.load(point.name, point.duration_s, p),
            stop_when_diverged=stop_when_diverged,
        )
        return measurement

    def _schedule(self, point: LoadPoint) -> RequestSchedule:
        closed = point.kind is LoadKind.CLOSED
        return build_schedule(
            self.trace,
            duration_s=SHAPES_S if closed else point.duration_s,
            rate_scale=1.0 if closed else point.rate_scale or 1.0,
            seed=SEED,
            max_model_len=self.endpoint.max_model_len,
        )


def _open(scale: float, duration_s: float) -> LoadPoint:
    return LoadPoint(kind=LoadKind.OPEN, rate_scale=scale, duration_s=duration_s)
