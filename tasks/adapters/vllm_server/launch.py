"""Starting an engine: begin its process, wait for a real completion, say why there is none.

Whatever goes wrong, and a Ctrl-C too, everything that was started is stopped before it is raised.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from tasks.adapters.vllm_server.begin import BegunEngine, begin_engine
from tasks.adapters.vllm_server.engine_log_file import LogFollower, log_text
from tasks.adapters.vllm_server.lease import sweep_leftovers
from tasks.adapters.vllm_server.preflight import check_checkpoint, check_directory
from tasks.adapters.vllm_server.readiness import (
    Ready,
    StartEndedError,
    StartWatch,
    wait_until_ready,
)
from tasks.adapters.vllm_server.running import RunningEngine, StopReport
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_facts import facts_from_log
from tasks.domain.engine_failures import EngineFailure, failure_from_log
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.engine_log_phases import EnginePhase
from tasks.domain.engine_progress import StartBudget
from tasks.domain.errors import (
    EngineDiedError,
    EngineNotReadyError,
    InfeasibleError,
    PortBusyError,
    TuningError,
)

PhaseListener = Callable[[EnginePhase], None]


def start_engine(
    launch: EngineLaunch,
    *,
    workdir: Path,
    lease_dir: Path,
    on_phase: PhaseListener | None = None,
) -> RunningEngine:
    """Start an engine and return it once it has answered a real completion.

    ``workdir`` (not the repository itself) becomes the engine's working directory and holds its
    ``engine.log``; on a failure ``engine_failure.json`` lies beside it.

    Raises:
        InfeasibleError: the engine cannot run this; its code says why.
        EngineDiedError: its process ended without such a cause.
        EngineNotReadyError: nothing moved in time, or the first completion failed.
        PortBusyError: somebody listens on the port.
        StorageError: workdir or lease_dir cannot be written, or the disk is full.
        InvalidParameterError: a value cannot be put on the command line.
    """
    check_checkpoint(launch)
    check_directory(workdir)
    check_directory(lease_dir)
    sweep_leftovers(lease_dir)
    begun = begin_engine(launch, workdir=workdir, lease_dir=lease_dir)
    try:
        watch = _watch(begun, on_phase)
        try:
            ready = wait_until_ready(watch)
        except StartEndedError as ended:
            raise _failed(begun, ended, phase=watch.log.phase) from ended
        return _running(begun, ready)
    except BaseException:
        begun.processes.end(timeout_s=launch.stop_timeout_s)
        raise


def _watch(begun: BegunEngine, on_phase: PhaseListener | None) -> StartWatch:
    launch = begun.launch
    return StartWatch(
        process=begun.processes.process,
        tree=begun.processes.tree,
        log=LogFollower(begun.log_path),
        budget=StartBudget(timeout_s=launch.startup_timeout_s, limit_s=launch.startup_limit_s),
        url=begun.url,
        host=launch.host,
        port=begun.port,
        served_name=launch.served_name,
        on_phase=on_phase,
    )


def _running(begun: BegunEngine, ready: Ready) -> RunningEngine:
    block_size = begun.launch.values.get("block_size")
    facts = facts_from_log(
        log_text(begun.log_path),
        block_size=block_size if isinstance(block_size, int) else None,
    )
    facts = replace(facts, startup_s=ready.startup_s, version=facts.version or ready.version)
    endpoint = Endpoint(
        url=begun.url,
        model=ready.model.name,
        owned=True,
        engine_version=ready.version or facts.version,
        max_model_len=ready.model.max_model_len or facts.max_model_len,
        pid=begun.processes.process.pid,
        control_dir=None if begun.control_dir is None else str(begun.control_dir),
    )
    return RunningEngine(
        processes=begun.processes,
        endpoint=endpoint,
        facts=facts,
        log_path=begun.log_path,
        stop_timeout_s=begun.launch.stop_timeout_s,
    )


def _failed(begun: BegunEngine, ended: StartEndedError, *, phase: str | None) -> TuningError:
    """Stop the engine, classify its end, leave the record beside the log; return the error."""
    alive = begun.processes.process.poll() is None
    report = begun.processes.end(timeout_s=begun.launch.stop_timeout_s)
    exit_code = None if alive else report.exit_code
    failure = failure_from_log(log_text(begun.log_path), exit_code=exit_code)
    if failure.code == "ENGINE_DIED" and ended.code is not None:
        failure = _timed_out(ended, ended.code)
    _keep(begun, failure, alive=alive, report=report, phase=phase)
    message = (
        f"engine {begun.launch.served_name!r} did not start: {failure.message}; {ended.what}; "
        f"log {begun.log_path}"
    )
    if failure.infeasible:
        return InfeasibleError(message, code=failure.code)
    if failure.code == "PORT_BUSY":
        return PortBusyError(message)
    if ended.code is not None:
        return EngineNotReadyError(message, code=failure.code)
    return EngineDiedError(message, code=failure.code)


def _timed_out(ended: StartEndedError, code: str) -> EngineFailure:
    return EngineFailure(
        code=code,
        infeasible=False,
        retry=True,
        root_cause="the process lived and served no completion in time",
        advice="raise startup_timeout_s where the host is slow",
        details=(("seen", ended.what),),
    )


def _keep(
    begun: BegunEngine,
    failure: EngineFailure,
    *,
    alive: bool,
    report: StopReport,
    phase: str | None,
) -> None:
    """Write the failure beside the log; a full disk must not hide the failure itself."""
    record = {
        **asdict(failure),
        "details": dict(failure.details),
        "process_alive": alive,
        "exit_code": report.exit_code,
        "last_phase": phase,
        "tree_killed": not report.survivors,
    }
    try:
        path = begun.log_path.with_name("engine_failure.json")
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    except OSError:
        return
