import json
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tasks.adapters.vllm_server.environment import TOKEN_VARIABLE
from tasks.adapters.vllm_server.launch import start_engine
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.engine_log_phases import EnginePhase
from tasks.domain.errors import (
    EngineDiedError,
    EngineNotReadyError,
    InfeasibleError,
    InvalidParameterError,
    MeasurementInvalidError,
    PortBusyError,
    StorageError,
)
from tasks.domain.parameters import ParameterValues

Starter = Callable[..., RunningEngine]


def nothing_is_left(workdir: Path, lease_dir: Path) -> bool:
    """Tell whether no process has its working directory there and no lease lies about."""
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(workdir) and process.status() != psutil.STATUS_ZOMBIE:
            return False
    return not list(lease_dir.glob("engine-*.json"))


def failure_record(workdir: Path) -> dict[str, object]:
    data = json.loads((workdir / "engine_failure.json").read_text())
    assert isinstance(data, dict)
    return data


def test_a_started_engine_is_ready_known_and_marked(start: Starter, tmp_path: Path) -> None:
    engine = start()
    assert engine.is_alive()
    assert engine.endpoint.model == "m-1"
    assert engine.endpoint.owned
    assert engine.endpoint.engine_version == "0.32.0"
    assert engine.endpoint.max_model_len == 2048
    assert engine.facts.kv_cache_tokens == 46592
    assert engine.facts.startup_s is not None
    assert engine.failure() is None
    engine.verify_identity()
    environ = json.loads((tmp_path / "work0" / "environ.json").read_text())
    assert len(environ[TOKEN_VARIABLE]) == 32


def test_phases_are_told_in_order(launch: EngineLaunch, tmp_path: Path, lease_dir: Path) -> None:
    seen: list[EnginePhase] = []
    with start_engine(launch, workdir=tmp_path / "w", lease_dir=lease_dir, on_phase=seen.append):
        pass
    names = [phase.name for phase in seen]
    assert names[0] == "process"
    assert names[-1] == "ready"
    assert names.index("kv cache") < names.index("engine ready")
    assert [phase.at_s for phase in seen] == sorted(phase.at_s for phase in seen)
    assert nothing_is_left(tmp_path / "w", lease_dir)


def test_a_taken_port_is_refused_with_its_owner_and_nothing_is_started(
    start: Starter, tmp_path: Path
) -> None:
    first = start()
    port = int(first.endpoint.url.rsplit(":", 1)[1])
    with pytest.raises(PortBusyError, match=rf"port={port} .*owner_pid={first.pid}") as caught:
        start({"port": port})
    assert caught.value.code == "PORT_BUSY"
    assert not (tmp_path / "work1" / "engine.log").exists()


def test_a_listener_with_reuseport_is_seen_as_taken(start: Starter) -> None:
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortBusyError, match="is taken"):
            start({"port": other.getsockname()[1]})


def test_a_stranger_that_takes_the_port_later_ends_the_identity(start: Starter) -> None:
    engine = start()
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.2", int(engine.endpoint.url.rsplit(":", 1)[1])))
        other.listen()
        with pytest.raises(MeasurementInvalidError) as caught:
            engine.verify_identity()
    assert caught.value.code == "SERVER_IDENTITY_MISMATCH"


def test_a_death_at_start_is_classified_from_the_sample(
    start: Starter, shared_dir: Path, tmp_path: Path, lease_dir: Path
) -> None:
    log = shared_dir / "samples" / "vllm-0.32.0-cpu-block-size-fail.log"
    with pytest.raises(InfeasibleError, match="No common block size for 16") as caught:
        start(mode="die_at_start", death_log=log)
    assert caught.value.code == "BLOCK_SIZE_NOT_SUPPORTED"
    assert "Engine core initialization failed" not in str(caught.value)
    record = failure_record(tmp_path / "work0")
    assert (record["exit_code"], record["process_alive"]) == (1, False)
    assert nothing_is_left(tmp_path / "work0", lease_dir)


def test_a_death_without_a_cause_may_be_tried_again(start: Starter) -> None:
    with pytest.raises(EngineDiedError, match="exit_code=7") as caught:
        start(mode="die_at_start", exit=7)
    assert caught.value.code == "ENGINE_DIED"


def test_a_death_at_the_first_request_is_no_readiness(
    start: Starter, shared_dir: Path, tmp_path: Path, lease_dir: Path
) -> None:
    log = shared_dir / "samples" / "vllm-0.32.0-cpu-awq-missing-kernel.log"
    with pytest.raises(InfeasibleError, match="cpu_gemm_wna16") as caught:
        start(mode="die_at_first_request", death_log=log, exit=0)
    assert caught.value.code == "MISSING_KERNEL"
    assert nothing_is_left(tmp_path / "work0", lease_dir)


def test_a_refused_first_request_is_told_with_its_answer(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.adapters.vllm_server.readiness.LAST_WORDS_S", 0.5)
    with pytest.raises(EngineNotReadyError, match="no kernel today") as caught:
        start(mode="refuse_first_request")
    assert caught.value.code == "FIRST_COMPLETION_FAILED"


def test_a_silent_engine_is_given_up_and_ended(
    start: Starter, tmp_path: Path, lease_dir: Path
) -> None:
    with pytest.raises(EngineNotReadyError, match="last phase 'arguments'") as caught:
        start({"startup_timeout_s": 2.0}, mode="silent")
    assert caught.value.code == "STARTUP_TIMEOUT"
    record = failure_record(tmp_path / "work0")
    assert (record["process_alive"], record["retry"], record["tree_killed"]) == (True, True, True)
    assert record["last_phase"] == "arguments"
    assert nothing_is_left(tmp_path / "work0", lease_dir)


def test_a_healthy_engine_that_completes_nothing_is_hung(start: Starter) -> None:
    with pytest.raises(EngineNotReadyError) as caught:
        start({"startup_timeout_s": 3.0}, mode="hang")
    assert caught.value.code == "ENGINE_HUNG"


def test_a_log_that_grows_outlives_the_timeout(start: Starter, tmp_path: Path) -> None:
    lines = "\n".join(f"(EngineCore pid=2) INFO 12-01 02:00:0{i} [b.py:1] step" for i in range(6))
    (tmp_path / "slow.log").write_text(lines)
    engine = start({"startup_timeout_s": 1.5}, log=tmp_path / "slow.log", delay_s=0.4)
    assert engine.facts.startup_s is not None
    assert engine.facts.startup_s > 1.5


def test_a_busy_start_without_a_line_outlives_the_timeout(start: Starter) -> None:
    engine = start({"startup_timeout_s": 2.5}, busy_s=3.0)
    assert engine.facts.startup_s is not None
    assert engine.facts.startup_s > 2.5


def test_another_served_name_is_never_ready(start: Starter) -> None:
    with pytest.raises(EngineNotReadyError) as caught:
        start({"startup_timeout_s": 2.0}, name="somebody-else")
    assert caught.value.code == "STARTUP_TIMEOUT"


def test_a_checkpoint_or_interpreter_that_is_not_there_costs_no_start(
    launch: EngineLaunch, tmp_path: Path, lease_dir: Path
) -> None:
    for change, code in (
        (replace(launch, model_dir=str(tmp_path / "none")), "MODEL_NOT_FOUND"),
        (replace(launch, python=str(tmp_path / "none")), "MISSING_MODULE"),
    ):
        with pytest.raises(InfeasibleError) as caught:
            start_engine(change, workdir=tmp_path / "w", lease_dir=lease_dir)
        assert caught.value.code == code
    assert not (tmp_path / "w").exists()


def test_a_working_directory_that_takes_no_file_is_a_storage_error(
    launch: EngineLaunch, tmp_path: Path, lease_dir: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/w cannot be written"):
        start_engine(launch, workdir=tmp_path / "file" / "w", lease_dir=lease_dir)


def test_a_full_disk_is_a_storage_error(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.adapters.vllm_server.preflight.MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(StorageError) as caught:
        start()
    assert caught.value.code == "DISK_FULL"


def test_a_working_directory_that_would_hide_a_library_is_refused(
    launch: EngineLaunch, tmp_path: Path, lease_dir: Path
) -> None:
    (tmp_path / "like-the-repository" / "mlflow").mkdir(parents=True)
    with pytest.raises(StorageError, match="holds a folder mlflow") as caught:
        start_engine(launch, workdir=tmp_path / "like-the-repository", lease_dir=lease_dir)
    assert caught.value.code == "WORKDIR_IN_REPOSITORY"


def test_a_bad_value_starts_nothing_and_leaves_no_lease(
    start: Starter, tmp_path: Path, lease_dir: Path
) -> None:
    with pytest.raises(InvalidParameterError):
        start({"values": ParameterValues.of({"--x": 1})})
    assert nothing_is_left(tmp_path / "work0", lease_dir)


def test_a_ctrl_c_while_starting_stops_the_engine_and_is_raised(
    launch: EngineLaunch, tmp_path: Path, lease_dir: Path
) -> None:
    def interrupt(phase: EnginePhase) -> None:
        if phase.name == "arguments":
            raise KeyboardInterrupt

    silent = replace(launch, env=(("SCRIPTED_MODE", "silent"),))
    with pytest.raises(KeyboardInterrupt):
        start_engine(silent, workdir=tmp_path / "w", lease_dir=lease_dir, on_phase=interrupt)
    assert nothing_is_left(tmp_path / "w", lease_dir)
