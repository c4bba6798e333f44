"""Deploy an engine, stop one, or attach to somebody else's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.adapters.prometheus_scrape import scrape
from tasks.adapters.vllm_server.attach import attach
from tasks.adapters.vllm_server.launch import start_engine
from tasks.adapters.vllm_server.lease import Leftover, sweep_leftovers
from tasks.adapters.vllm_server.live_knobs import apply_values, control_dir_at, current_values
from tasks.adapters.vllm_server.running import RunningEngine, StopReport
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.engine_log_phases import EnginePhase
from tasks.domain.errors import ConfigError
from tasks.domain.live_values import EngineState
from tasks.domain.parameters import ParameterValues
from tasks.domain.reported_values import reported_values

DRAIN_WAIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEngine:
    """A running engine that loaded the scheduler plug-in, and what it runs with."""

    endpoint: Endpoint
    state: EngineState


def deploy_engine(
    launch: EngineLaunch,
    *,
    workdir: Path,
    lease_dir: Path,
    on_phase: Callable[[EnginePhase], None] | None = None,
) -> RunningEngine:
    """Start an engine and return it once it has answered a real completion."""
    return start_engine(launch, workdir=workdir, lease_dir=lease_dir, on_phase=on_phase)


def engine_state(url: str, *, control_dir: Path | None, lease_dir: Path) -> LiveEngine:
    """Return the engine at a URL by its control folder: the one given, or our own record's.

    Raises:
        ConfigError: there is no control folder, or the engine in it serves no such URL.
        EngineNotReadyError: the engine answers at the URL or in the folder no more.
    """
    folder = control_dir_at(url, lease_dir) if control_dir is None else control_dir
    state = current_values(folder)
    endpoint = attach(url, model=state.model)
    return LiveEngine(endpoint=replace(endpoint, control_dir=str(folder)), state=state)


def move_engine(
    endpoint: Endpoint, values: ParameterValues, *, wait_s: float = DRAIN_WAIT_S
) -> EngineState:
    """Move a running engine's live knobs and return its state once they are in force.

    Raises:
        ConfigError: the engine was started without live_knobs.
        InvalidParameterError: the engine refused; it keeps its values.
        EngineNotReadyError: not in force after wait_s, or nothing answers.
    """
    if endpoint.control_dir is None:
        raise ConfigError(
            f"the engine at {endpoint.url} was started without live_knobs, so "
            f"{values.as_dict()} needs a restart; start it with live_knobs",
            code="NO_LIVE_KNOBS",
        )
    return apply_values(Path(endpoint.control_dir), values, wait_s=wait_s)


def stop_engine(engine: RunningEngine) -> StopReport:
    """End the engine and all its processes."""
    return engine.stop()


def attach_engine(
    url: str, *, model: str | None = None, api_key_env: str | None = None
) -> Endpoint:
    """Return the endpoint of an engine that somebody else runs, with the values it reports."""
    endpoint = attach(url, model=model, api_key_env=api_key_env)
    seen = scrape(endpoint.url)
    return replace(endpoint, reported=reported_values(seen, max_model_len=endpoint.max_model_len))


def sweep_engines(lease_dir: Path) -> tuple[Leftover, ...]:
    """End what dead owners left behind and report every lease that was found."""
    return sweep_leftovers(lease_dir)
