"""Deploy an engine, stop one, or attach to somebody else's."""

from collections.abc import Callable
from pathlib import Path

from tasks.adapters.vllm_server.attach import attach
from tasks.adapters.vllm_server.launch import start_engine
from tasks.adapters.vllm_server.lease import Leftover, sweep_leftovers
from tasks.adapters.vllm_server.running import RunningEngine, StopReport
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.engine_log_phases import EnginePhase


def deploy_engine(
    launch: EngineLaunch,
    *,
    workdir: Path,
    lease_dir: Path,
    on_phase: Callable[[EnginePhase], None] | None = None,
) -> RunningEngine:
    """Start an engine and return it once it has answered a real completion."""
    return start_engine(launch, workdir=workdir, lease_dir=lease_dir, on_phase=on_phase)


def stop_engine(engine: RunningEngine) -> StopReport:
    """End the engine and all its processes."""
    return engine.stop()


def attach_engine(
    url: str, *, model: str | None = None, api_key_env: str | None = None
) -> Endpoint:
    """Return the endpoint of an engine that somebody else runs."""
    return attach(url, model=model, api_key_env=api_key_env)


def sweep_engines(lease_dir: Path) -> tuple[Leftover, ...]:
    """End what dead owners left behind and report every lease that was found."""
    return sweep_leftovers(lease_dir)
