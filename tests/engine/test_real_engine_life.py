"""Real vLLM, started and ended in the ways that matter; one start serves several checks."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tasks.adapters.vllm_server.running import RunningEngine
from tasks.deploy import attach_engine, deploy_engine, stop_engine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.errors import InfeasibleError, PortBusyError
from tasks.domain.parameters import ParameterValues

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("RETUNE_ENGINE_PYTHON", str(REPOSITORY / ".venv-engine/bin/python"))
MODEL = os.environ.get("RETUNE_ENGINE_MODEL", str(REPOSITORY / "models/smollm2-135m"))

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", autouse=True)
def one_engine_at_a_time() -> Iterator[None]:
    """Hold RETUNE_ENGINE_LOCK, where it is set, while this file's engines run."""
    for path in (PYTHON, str(Path(MODEL) / "config.json")):
        if not Path(path).exists():
            if os.environ.get("CI") == "true":
                pytest.fail(f"{path} is absent in CI")
            pytest.skip(f"{path} is absent; set RETUNE_ENGINE_PYTHON and RETUNE_ENGINE_MODEL")
    with contextlib.ExitStack() as stack:
        lock = os.environ.get("RETUNE_ENGINE_LOCK")
        if lock:
            fcntl.flock(stack.enter_context(Path(lock).open("w")), fcntl.LOCK_EX)
        yield


def launch(name: str, **values: int | bool) -> EngineLaunch:
    return EngineLaunch(
        model_dir=MODEL,
        served_name=name,
        python=PYTHON,
        kv_cache_gib=1.0,
        values=ParameterValues.of(
            {"max_model_len": 1024, "max_num_seqs": 8, "block_size": 32, **values}
        ),
    )


def of_directory(workdir: Path) -> list[int]:
    """Return the pids of live processes that work in a directory."""
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        info = process.info
        if info["cwd"] == str(workdir) and info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def until(condition: Callable[[], bool], *, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.2)
    return condition()


def port_of(engine: RunningEngine) -> int:
    return int(engine.endpoint.url.rsplit(":", 1)[1])


def test_a_real_engine_starts_serves_alone_and_stops_whole(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    phases: list[tuple[str, float]] = []
    engine = deploy_engine(
        launch("life-1", enable_prefix_caching=False),
        workdir=tmp_path / "w",
        lease_dir=tmp_path / "leases",
        on_phase=lambda phase: phases.append((phase.name, round(phase.at_s, 1))),
    )
    with engine:
        record_property("startup_s", engine.facts.startup_s)
        print(json.dumps(phases))  # noqa: T201 - seconds are what a person runs this for
        facts = engine.facts
        assert (facts.dtype, facts.max_model_len, facts.attention_backend) == (
            "float32",
            1024,
            "CPU_ATTN",
        )
        assert facts.enable_prefix_caching is False
        assert (facts.kv_gib, facts.engines) == (1.0, 1)
        assert facts.kv_cache_tokens is not None
        assert facts.kv_cache_tokens > 1024
        assert ("max_num_seqs", "8") in facts.non_default_args
        assert engine.endpoint.engine_version == facts.version
        assert engine.endpoint.max_model_len == 1024
        engine.verify_identity()
        assert len(engine.pids()) >= 2
        assert set(of_directory(tmp_path / "w")) <= set(engine.pids())

        taken = launch("life-2")
        with pytest.raises(PortBusyError, match=f"owner_pid={engine.pid}"):
            deploy_engine(
                EngineLaunch(
                    model_dir=taken.model_dir,
                    served_name=taken.served_name,
                    python=taken.python,
                    port=port_of(engine),
                ),
                workdir=tmp_path / "w2",
                lease_dir=tmp_path / "leases",
            )
        foreign = attach_engine(engine.endpoint.url)
        assert (foreign.model, foreign.owned) == ("life-1", False)
        report = stop_engine(engine)
    assert report.clean
    assert report.killed == ()
    assert of_directory(tmp_path / "w") == []
    assert not list((tmp_path / "leases").glob("engine-*.json"))


def test_a_checkpoint_that_is_not_one_is_told_by_its_directory(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match="model_dir") as caught:
        deploy_engine(
            EngineLaunch(model_dir=str(tmp_path / "none"), served_name="n", python=PYTHON),
            workdir=tmp_path / "w",
            lease_dir=tmp_path / "leases",
        )
    assert caught.value.code == "MODEL_NOT_FOUND"


def test_an_argument_that_the_real_engine_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match="--swap-space") as caught:
        deploy_engine(
            launch("life-3", swap_space=4),
            workdir=tmp_path / "w",
            lease_dir=tmp_path / "leases",
        )
    assert caught.value.code == "UNKNOWN_ENGINE_ARGUMENT"
    record = json.loads((tmp_path / "w" / "engine_failure.json").read_text())
    assert (record["details"]["argument"], record["exit_code"]) == ("swap_space", 2)
    assert of_directory(tmp_path / "w") == []


def test_a_model_length_that_does_not_fit_is_infeasible(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError) as caught:
        deploy_engine(
            launch("life-4", max_model_len=1_000_000),
            workdir=tmp_path / "w",
            lease_dir=tmp_path / "leases",
        )
    assert caught.value.code == "BAD_VALUE"
    assert "max_model_len" in str(caught.value)


OWNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tasks.deploy import deploy_engine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.parameters import ParameterValues
here = Path(sys.argv[2])
values = ParameterValues.of({"max_model_len": 1024, "max_num_seqs": 8, "block_size": 32})
launch = EngineLaunch(
    model_dir=sys.argv[3], served_name="life-5", python=sys.argv[4], kv_cache_gib=1.0, values=values
)
engine = deploy_engine(launch, workdir=here / "w", lease_dir=here / "leases")
(here / "ready").write_text(engine.endpoint.url)
time.sleep(600)
"""


def test_the_guardian_ends_a_real_engine_whose_owner_was_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(REPOSITORY), str(tmp_path), MODEL, PYTHON], cwd=tmp_path
    )
    try:
        assert until((tmp_path / "ready").exists, limit_s=240.0)
        assert len(of_directory(tmp_path / "w")) >= 2
        assert httpx.get((tmp_path / "ready").read_text() + "/health").status_code == 200
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    assert until(lambda: of_directory(tmp_path / "w") == [], limit_s=30.0)
    assert until(lambda: not list((tmp_path / "leases").glob("*.json")), limit_s=5.0)


def streamed(engine: RunningEngine, model: str) -> Iterator[str]:
    """Yield the lines of a long completion as they come."""
    body = {"model": model, "prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True}
    url = f"{engine.endpoint.url}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=60.0) as reply:
        yield from reply.iter_lines()


def process_of(engine: RunningEngine, title: str) -> psutil.Process:
    """Return the process that vLLM gives this title."""
    children = psutil.Process(engine.pid).children(recursive=True)
    return next(child for child in children if f"VLLM::{title}" in " ".join(child.cmdline()))


def test_an_engine_whose_core_is_killed_under_load_is_classified(tmp_path: Path) -> None:
    with deploy_engine(
        launch("life-6"), workdir=tmp_path / "w", lease_dir=tmp_path / "leases"
    ) as engine:
        killed = False
        with contextlib.suppress(httpx.HTTPError):
            for _ in streamed(engine, "life-6"):
                if not killed:
                    process_of(engine, "EngineCore").kill()
                    killed = True
        assert killed
        failure = engine.dying_words()
        assert failure is not None
        assert (failure.code, failure.retry) == ("ENGINE_DIED", True)
    assert of_directory(tmp_path / "w") == []


def test_an_engine_that_runs_out_of_memory_under_load_says_when(tmp_path: Path) -> None:
    with deploy_engine(
        launch("life-7"), workdir=tmp_path / "w", lease_dir=tmp_path / "leases"
    ) as engine:
        worker = process_of(engine, "Worker")
        limit = worker.memory_info().vms + (128 << 20)
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit, limit))
        # The logits of a whole prompt: 900 tokens x 49,152 x 4 bytes = 177 MB in one piece.
        body = {"model": "life-7", "prompt": [1000] * 900, "max_tokens": 4, "prompt_logprobs": 1}
        with contextlib.suppress(httpx.TransportError):
            reply = httpx.post(f"{engine.endpoint.url}/v1/completions", json=body, timeout=60.0)
            assert reply.status_code == 500
        failure = engine.dying_words()
    assert failure is not None
    assert (failure.code, failure.infeasible) == ("HOST_OUT_OF_MEMORY", True)
    assert failure.detail("when") == "load"
    assert "can't allocate memory" in failure.root_cause
    assert of_directory(tmp_path / "w") == []
