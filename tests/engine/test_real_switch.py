"""A real engine moved from off-peak to peak values and back under load, by the command line."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tasks.adapters.checkpoints.hashing import checkpoint_sha256
from tasks.adapters.vllm_server.live_knobs import current_values
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.deploy import deploy_engine, move_engine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.errors import InfeasibleError, InvalidParameterError
from tasks.domain.parameters import ParameterValues
from tests.conftest import REPOSITORY

REQUESTS = 40
OUTPUT_TOKENS = 24
OFF_PEAK = {"max_num_seqs": 2, "max_num_batched_tokens": 64}
PEAK = {"max_num_seqs": 16, "max_num_batched_tokens": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    engine: RunningEngine
    home: Path


@pytest.fixture(scope="module")
def served(
    engine_python: str, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("switch")
    launch = EngineLaunch(
        model_dir=str(model_dir),
        served_name="switched",
        python=engine_python,
        values=ParameterValues.of({"max_model_len": 1024, **PEAK}),
        kv_cache_gib=1.0,
        live_knobs=True,
    )
    with deploy_engine(launch, workdir=home / "w", lease_dir=home / "leases") as engine:
        yield Served(engine=engine, home=home)


def cli(
    served: Served, values: dict[str, object], *more: str, home: Path, **document: object
) -> subprocess.CompletedProcess[str]:
    path = served.home / "set.yaml"
    head = {"name": "s", "regime": "peak", "state": "baseline", "model": "switched"}
    whole = {**head, "checkpoint": "reference", "values": values, **document}
    path.write_text(json.dumps(whole))
    command = [sys.executable, "-m", "flows.cli", "switch", str(path), *more]
    return subprocess.run(
        [*command, "--url", served.engine.endpoint.url],
        env={**os.environ, "RETUNE_HOME": str(home)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def switch(served: Served, values: dict[str, object]) -> tuple[int, dict[str, object]]:
    done = cli(served, values, "--json", home=served.home)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def in_force(answer: dict[str, object]) -> dict[str, object]:
    engine = answer["engine"]
    assert isinstance(engine, dict)
    return dict(engine["in_force"]["items"])


def running(url: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=30.0).text.splitlines()
    line = next(line for line in lines if line.startswith("vllm:num_requests_running{"))
    return float(line.rsplit(" ", 1)[1])


def complete(url: str, number: int) -> int:
    """Return the tokens of one completion; raise where it failed."""
    body = {
        "model": "switched",
        "prompt": f"Request {number}: " + "word " * 60,
        "max_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
    }
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=100.0)
    reply.raise_for_status()
    return int(reply.json()["usage"]["completion_tokens"])


def most_running(url: str, *, until: Callable[[float], bool]) -> float:
    """Return the largest number of running requests seen until the condition on it holds."""
    most, deadline = 0.0, time.monotonic() + 60.0
    while not until(most):
        assert time.monotonic() < deadline, f"at most {most} ran"
        most = max(most, running(url))
        time.sleep(0.05)
    return most


def test_a_switch_under_load_moves_the_cap_and_drops_no_request(served: Served) -> None:
    url = served.engine.endpoint.url
    code, answer = switch(served, dict(OFF_PEAK))
    assert (code, in_force(answer)) == (0, OFF_PEAK)

    with ThreadPoolExecutor(max_workers=REQUESTS) as pool:
        load: list[Future[int]] = [pool.submit(complete, url, i) for i in range(REQUESTS)]

        def done(count: int) -> Callable[[float], bool]:
            return lambda most: sum(future.done() for future in load) >= count

        assert most_running(url, until=done(4)) == 2

        code, answer = switch(served, dict(PEAK))
        assert (code, in_force(answer)) == (0, PEAK)
        assert 2 < most_running(url, until=lambda most: most > 8) <= 16

        code, answer = switch(served, dict(OFF_PEAK))
        assert (code, in_force(answer)) == (0, OFF_PEAK)
        time.sleep(0.5)  # /metrics tells of a step after it
        count = sum(future.done() for future in load)
        assert count < REQUESTS - 4, "too few requests are left to see the lower cap"
        assert most_running(url, until=done(count + 2)) == 2

        code, answer = switch(served, dict(PEAK))
        assert (code, in_force(answer)) == (0, PEAK)
        tokens = [future.result() for future in load]
    assert tokens == [OUTPUT_TOKENS] * REQUESTS


def test_what_needs_a_restart_is_told_and_the_rest_is_moved(served: Served) -> None:
    values: dict[str, object] = {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 256,
        "max_model_len": 2048,
        "dtype": "float32",
    }
    code, answer = switch(served, values)
    assert code == 1
    restart = answer["restart"]
    assert isinstance(restart, list)
    told = {change["name"]: (change["old"], change["new"]) for change in restart}
    assert told == {"max_model_len": (1024, 2048), "max_num_seqs": (16, 32)}
    assert answer["unchanged"] == ["dtype"]
    assert in_force(answer) == {"max_num_seqs": 16, "max_num_batched_tokens": 256}


def test_an_engine_of_another_home_is_named_by_its_control_folder(
    served: Served, tmp_path: Path
) -> None:
    switch(served, dict(OFF_PEAK))
    unknown = cli(served, {"max_num_seqs": 4}, home=tmp_path)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "error NO_LIVE_KNOBS" in unknown.stderr
    control = str(served.engine.endpoint.control_dir)
    known = cli(served, {"max_num_seqs": 4}, "--control", control, home=tmp_path)
    assert known.returncode == 0, known.stderr
    assert "switched: max_num_seqs 2 -> 4, confirmed by the engine" in known.stdout
    assert "returned: max_num_batched_tokens 64 -> 512" in known.stdout


def test_a_real_engine_is_the_sets_by_name_weights_and_start_values(
    served: Served, model_dir: Path
) -> None:
    measured = {"checkpoint_sha256": checkpoint_sha256(model_dir), "engine_values": {
        "max_model_len": 1024, "dtype": "float32", "enforce_eager": True, "block_size": 128,
        "enable_prefix_caching": True, "kv_cache_dtype": "auto"}}  # fmt: skip
    own = cli(served, dict(OFF_PEAK), home=served.home, provenance=measured)
    assert own.returncode == 0, own.stderr
    assert "not checked" not in own.stdout

    other = {"checkpoint_sha256": "ab" * 32, "engine_values": {"max_model_len": 2048}}
    refused = cli(served, dict(PEAK), home=served.home, model="other", provenance=other)
    assert (refused.returncode, refused.stdout) == (2, "")
    for words in ("model: found switched, needed other", "checkpoint_sha256: found",
                  "max_model_len: found 1024, needed 2048", "--accept model=switched"):  # fmt: skip
        assert words in refused.stderr
    assert in_force(switch(served, dict(OFF_PEAK))[1]) == OFF_PEAK


def test_the_engine_itself_refuses_what_it_cannot_do_and_keeps_its_values(served: Served) -> None:
    endpoint = served.engine.endpoint
    assert endpoint.control_dir is not None
    before = current_values(Path(endpoint.control_dir))
    wrong: tuple[dict[str, int], ...] = (
        {"max_num_seqs": 17}, {"max_num_seqs": 16, "max_num_batched_tokens": 15}, {"block_size": 64}
    )  # fmt: skip
    for values in wrong:
        with pytest.raises(InvalidParameterError, match=list(values)[-1]) as caught:
            move_engine(endpoint, ParameterValues.of(values))
        assert caught.value.code == "SWITCH_REFUSED"
    assert current_values(Path(endpoint.control_dir)) == before


def test_the_control_folder_goes_with_the_engine(served: Served) -> None:
    folder = Path(str(served.engine.endpoint.control_dir))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert served.engine.stop().clean
    assert not folder.exists()


def test_an_engine_that_plans_by_its_start_values_refuses_to_start(
    engine_python: str, model_dir: Path, tmp_path: Path
) -> None:
    launch = EngineLaunch(
        model_dir=str(model_dir),
        served_name="refused",
        python=engine_python,
        values=ParameterValues.of(
            {"max_model_len": 1024, "long_prefill_token_threshold": 64,
             "long_prefill_token_threshold_adaptive": True}
        ),
        kv_cache_gib=1.0,
        live_knobs=True,
    )  # fmt: skip
    with pytest.raises(InfeasibleError, match="not tried together with long_prefill") as caught:
        deploy_engine(launch, workdir=tmp_path / "w", lease_dir=tmp_path / "leases")
    assert caught.value.code == "LIVE_KNOBS_REFUSED"
    assert not list((tmp_path / "leases").glob("engine-*"))
