"""The verbs that offer load: measure one load point, warm an engine up."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.evidence_store import set_aside
from tasks.adapters.load_client.progress import ReplayProgress
from tasks.adapters.load_client.replay import closed_loop, replay
from tasks.adapters.load_client.request_body import Api, Decode
from tasks.adapters.request_parquet import write_requests
from tasks.domain.divergence import DivergenceWatch, stopped_flag, stopped_records
from tasks.domain.endpoint import Endpoint
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement, reduce_records
from tasks.domain.profile import Profile
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.request_table import RequestTable, request_table
from tasks.domain.schedule import RequestSchedule
from tasks.domain.slo import Slo
from tasks.domain.validity import ServerFacts
from tasks.profiling import profile_engine

OnProgress = Callable[[ReplayProgress], None]
DRAIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load point with the requests and the prompts that make it.

    salt: makes the prompts' tokens other ones than in every other run. workers: client processes.
    extensions: send vLLM's own request fields; without them a server may stop early and each
    chunk counts as one token. decode: token ids to text, for a server that takes chats only.
    """

    point: LoadPoint
    schedule: RequestSchedule
    vocabulary: PromptVocabulary
    salt: str
    workers: int = 1
    extensions: bool = True
    decode: Decode | None = None

    @property
    def api(self) -> Api:
        """Return the route that the requests go to."""
        return "completions" if self.decode is None else "chat"


def offer_load(
    endpoint: Endpoint,
    load: Load,
    *,
    on_progress: OnProgress | None = None,
    watch: DivergenceWatch | None = None,
) -> tuple[tuple[RequestRecord, ...], ClientReport]:
    """Offer the load point, open or closed loop as it says, and return the raw records.

    ``watch`` ends an open load once it has seen the queue diverge.
    """
    if load.point.kind is LoadKind.CLOSED:
        return closed_loop(
            endpoint,
            load.schedule,
            concurrency=load.point.concurrency or 1,
            duration_s=load.point.duration_s,
            vocabulary=load.vocabulary,
            salt=load.salt,
            drain_timeout_s=DRAIN_S,
            workers=load.workers,
            api=load.api,
            extensions=load.extensions,
            decode=load.decode,
            on_progress=on_progress,
        )

    def watched(progress: ReplayProgress) -> None:
        if watch is not None:
            watch.take(
                elapsed_s=progress.elapsed_s,
                in_flight=progress.in_flight,
                done=progress.done,
                ttft_p50_s=progress.ttft_p50_s,
            )
        if on_progress is not None:
            on_progress(progress)

    return replay(
        endpoint,
        load.schedule,
        vocabulary=load.vocabulary,
        salt=load.salt,
        drain_timeout_s=DRAIN_S,
        workers=load.workers,
        api=load.api,
        extensions=load.extensions,
        decode=load.decode,
        on_progress=watched,
        stop=None if watch is None else lambda: watch.diverged,
    )


def measure_load(
    endpoint: Endpoint,
    load: Load,
    *,
    slo: Slo,
    window_s: float,
    evidence_dir: Path,
    on_progress: OnProgress | None = None,
    requests_before: int | None = None,
    stop_when_diverged: bool = False,
) -> tuple[Measurement, Profile, RequestTable]:
    """Offer the load under observation; keep the raw rows, then return what they reduce to.

    The table holds the requests themselves, for what must be judged again.

    stop_when_diverged: end the load early once its queue diverges; the measurement is then of the
    part before, and flagged.
    Written to ``evidence_dir`` before anything is judged: requests.parquet, metrics.jsonl.gz and
    device.jsonl.gz. What an earlier try left there is set aside, not overwritten.

    Raises:
        StorageError: if the rows cannot be kept.
    """
    set_aside(evidence_dir)
    watch = DivergenceWatch(ttft_limit_s=slo.ttft_s) if stop_when_diverged else None
    (records, client), profile = profile_engine(
        endpoint,
        lambda: offer_load(endpoint, load, on_progress=on_progress, watch=watch),
        artifacts_dir=evidence_dir,
        requests_before=requests_before,
    )
    planned_s = duration_s = load.point.duration_s
    if watch is not None and watch.stopped_at_s is not None:
        duration_s = min(planned_s, watch.stopped_at_s)
        records = stopped_records(records, at_s=duration_s)
    about = {
        "load_point": load.point.name,
        "schedule_sha256": load.schedule.sha256,
        "salt": load.salt,
        "model": endpoint.model,
    }
    write_requests(evidence_dir / "requests.parquet", records, about=about)
    measurement = reduce_records(
        records,
        load_point=load.point,
        schedule_duration_s=duration_s,
        slo=slo,
        client=client,
        window_s=min(window_s, duration_s),
        server=_server_facts(profile, load),
        schedule_sha256=load.schedule.sha256,
    )
    if watch is not None and watch.diverged:
        told = stopped_flag(at_s=duration_s, planned_s=planned_s, n=len(records))
        measurement = measurement.with_flags(told)
    return measurement, profile, request_table(records, duration_s=duration_s)


def _server_facts(profile: Profile, load: Load) -> ServerFacts:
    window = profile.window
    if window is None:
        return ServerFacts()
    peaks = (window.running_max, window.waiting_max)
    return ServerFacts(
        hit_frac=window.prefix_hit_frac,
        expected_hit_frac=load.schedule.reuse_frac,
        peak_requests=None if None in peaks else int(sum(p for p in peaks if p is not None)),
        counter_resets=("vllm counters",) if window.restarted else (),
    )
