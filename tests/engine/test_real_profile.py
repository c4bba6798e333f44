"""A real engine under a little load: metrics, host and a torch profiler window."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tasks.adapters.prometheus_scrape import scrape
from tasks.domain.diagnosis import diagnose
from tasks.domain.diagnosis_facts import LatencyView
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_window import engine_window
from tasks.domain.kernel_table import KernelTable
from tasks.profiling import TraceWindow, profile_engine

pytestmark = pytest.mark.engine

REQUESTS, TOKENS = 2, 8


def served_model(url: str) -> str:
    listed = httpx.get(f"{url}/v1/models", trust_env=False, timeout=30).json()
    return str(listed["data"][0]["id"])


def complete(url: str, model: str, seed: int) -> int:
    prompt = [1000 + (seed * 97 + i) % 5000 for i in range(40)]
    body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True}
    reply = httpx.post(f"{url}/v1/completions", json=body, trust_env=False, timeout=300)
    reply.raise_for_status()
    return int(reply.json()["usage"]["completion_tokens"])


def offer(url: str, model: str, *, first_seed: int) -> int:
    with ThreadPoolExecutor(max_workers=REQUESTS) as pool:
        seeds = range(first_seed, first_seed + REQUESTS)
        return sum(pool.map(lambda seed: complete(url, model, seed), seeds))


def test_a_real_engine_is_profiled_whole(
    engine_url: str, engine_profile_dir: Path, tmp_path: Path
) -> None:
    model = served_model(engine_url)
    complete(engine_url, model, 0)
    tokens, profile = profile_engine(
        Endpoint(url=engine_url, model=model, owned=False),
        lambda: offer(engine_url, model, first_seed=1),
        period_s=0.2,
        artifacts_dir=tmp_path,
        trace=TraceWindow(
            seconds=1.5,
            trace_dir=engine_profile_dir,
            load=lambda: offer(engine_url, model, first_seed=100),
        ),
    )
    window, table = profile.window, profile.kernels
    assert tokens == REQUESTS * TOKENS
    assert window is not None
    assert window.generation_tokens == tokens
    assert window.requests_finished == REQUESTS
    assert window.running_max is not None
    assert window.running_max >= 1
    assert profile.missing == ()  # every wanted metric of this version has a name in the table
    assert profile.warnings == ()
    assert isinstance(table, KernelTable), profile.kernels_missing
    assert table.rows[0].share_frac > 0.2
    assert "matmul" in dict(table.categories)
    diagnosis = diagnose(profile, latency=LatencyView(client_late=False))
    assert "client-limited" not in {found.rule_id for found in diagnosis.first_reading}


def test_a_real_engine_exposes_every_metric_that_is_wanted(engine_url: str) -> None:
    window = engine_window((scrape(engine_url),))
    assert [note for note in window.notes if note[0] in ("MISSING_METRIC", "NO_SNAPSHOTS")] == []
