"""A load that the server cannot keep up with ends early, judged by what was due until then."""

from pathlib import Path

import pytest

from tasks import benchmark
from tasks.adapters.request_parquet import read_requests
from tasks.domain import divergence
from tasks.domain.endpoint import Endpoint
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tasks.domain.slo import Slo
from tests.fakes.streaming_server import Script, golden_server, steady

PLANNED_S = 300.0


def test_a_server_that_never_answers_ends_the_probe_long_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divergence, "LEAST_S", 2.0)
    monkeypatch.setattr(divergence, "HOLDS_S", 1.0)
    requests = tuple(
        ScheduledRequest(index=i, due_s=0.02 * i, prompt_tokens=2, output_tokens=2)
        for i in range(round(PLANNED_S / 0.02))
    )
    silent = Script(steps=steady(2, gap_s=0, first_s=0).steps, gate=10 * len(requests))
    with golden_server(silent) as server:
        measured, _, table = benchmark.measure_load(
            Endpoint(url=server.url, model="golden", owned=False),
            benchmark.Load(
                point=LoadPoint(kind=LoadKind.OPEN, rate_scale=2.0, duration_s=PLANNED_S),
                schedule=RequestSchedule(requests=requests, duration_s=PLANNED_S, seed=1),
                vocabulary=PromptVocabulary(token_ids=(1, 2)),
                salt="t",
            ),
            slo=Slo(ttft_s=0.5),
            window_s=30.0,
            evidence_dir=tmp_path,
            stop_when_diverged=True,
        )
    assert measured.window_s < PLANNED_S / 2
    assert measured.n_requests < len(requests) / 2
    assert dict(measured.errors) == {"STOPPED": measured.n_requests}
    assert "STOPPED_EARLY" in [flag.code for flag in measured.flags]
    assert measured.windows[-1].diverged
    assert table.duration_s == measured.window_s
    kept = read_requests(tmp_path / "requests.parquet")
    assert len(kept) == measured.n_requests
    assert {record.error_code for record in kept} == {"STOPPED"}
