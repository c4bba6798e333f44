"""The verbs that offer load: measure one load point, warm an engine up."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.evidence_store import set_aside
from tasks.adapters.load_client.progress import ReplayProgress
from tasks.adapters.load_client.replay import closed_loop, replay
from tasks.adapters.request_parquet import write_requests
from tasks.domain.endpoint import Endpoint
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement, reduce_records
from tasks.domain.profile import Profile
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import ClientReport, RequestRecord
from tasks.domain.schedule import RequestSchedule
from tasks.domain.slo import Slo
from tasks.domain.validity import ServerFacts
from tasks.profiling import profile_engine

OnProgress = Callable[[ReplayProgress], None]
DRAIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load point with the requests and the prompts that make it.

    salt: makes the prompts' tokens other ones than in every other run.
    """

    point: LoadPoint
    schedule: RequestSchedule
    vocabulary: PromptVocabulary
    salt: str


def offer_load(
    endpoint: Endpoint, load: Load, *, on_progress: OnProgress | None = None
) -> tuple[tuple[RequestRecord, ...], ClientReport]:
    """Offer the load point, open or closed loop as it says, and return the raw records."""
    if load.point.kind is LoadKind.CLOSED:
        return closed_loop(
            endpoint,
            load.schedule,
            concurrency=load.point.concurrency or 1,
            duration_s=load.point.duration_s,
            vocabulary=load.vocabulary,
            salt=load.salt,
            drain_timeout_s=DRAIN_S,
            on_progress=on_progress,
        )
    return replay(
        endpoint,
        load.schedule,
        vocabulary=load.vocabulary,
        salt=load.salt,
        drain_timeout_s=DRAIN_S,
        on_progress=on_progress,
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
) -> tuple[Measurement, Profile]:
    """Offer the load under observation; keep the raw rows, then return what they reduce to.

    Written to ``evidence_dir`` before anything is judged: requests.parquet, metrics.jsonl.gz and
    device.jsonl.gz. What an earlier try left there is set aside, not overwritten.

    Raises:
        StorageError: if the rows cannot be kept.
    """
    set_aside(evidence_dir)
    (records, client), profile = profile_engine(
        endpoint,
        lambda: offer_load(endpoint, load, on_progress=on_progress),
        artifacts_dir=evidence_dir,
        requests_before=requests_before,
    )
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
        schedule_duration_s=load.point.duration_s,
        slo=slo,
        client=client,
        window_s=window_s,
        server=_server_facts(profile, load),
        schedule_sha256=load.schedule.sha256,
    )
    return measurement, profile


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
