"""Deploy an engine, stop one, or attach to somebody else's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.adapters.checkpoints.hash_memo import HashMemo, KnownFile
from tasks.adapters.checkpoints.published import served_sha256
from tasks.adapters.evidence_store import OutcomeStore
from tasks.adapters.prometheus_scrape import scrape
from tasks.adapters.vllm_server.attach import attach, served_weights
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
from tasks.domain.set_on_engine import ServedWeights

DRAIN_WAIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEngine:
    """A running engine that loaded the scheduler plug-in, what it runs with and what it serves."""

    endpoint: Endpoint
    state: EngineState
    served: ServedWeights


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
        ConfigError: there is no control folder, or the engine in it is not the one at the URL.
        EngineNotReadyError: the engine answers at the URL or in the folder no more.
    """
    folder = control_dir_at(url, lease_dir) if control_dir is None else control_dir
    state = current_values(folder)
    endpoint = attach(url, model=state.model)
    served = served_weights(endpoint.url, model=state.model)
    _refuse_other_folder(url, folder, served=served, state=state)
    return LiveEngine(
        endpoint=replace(endpoint, control_dir=str(folder)), state=state, served=served
    )


def with_checkpoint(engine: LiveEngine, *, hashes: Path) -> LiveEngine:
    """Return the engine with the hash of its checkpoint, where the folder is on this machine.

    A folder that this product made tells its hash; any other is read whole, once for as long as
    its files stay as they are: ``hashes`` is the folder where that is remembered.
    """
    root = engine.served.root
    if root is None or not Path(root).is_absolute():
        return engine
    sha256 = served_sha256(Path(root), HashMemo(known=OutcomeStore(hashes, KnownFile)))
    return replace(engine, served=replace(engine.served, sha256=sha256))


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


def _refuse_other_folder(
    url: str, control_dir: Path, *, served: ServedWeights, state: EngineState
) -> None:
    """Raise where the URL and the control folder tell of two engines.

    Only folders are compared: of a model that was fetched, one tells its name, the other its copy.
    """
    loaded = state.started_with.get("model")
    pair = (served.root, loaded)
    if served.root == loaded or not all(isinstance(p, str) and p.startswith("/") for p in pair):
        return
    raise ConfigError(
        f"{url} serves {served.root}, the engine of control folder {control_dir} loaded {loaded}: "
        "two engines; give --control the RETUNE_CONTROL_DIR of the engine at the URL",
        code="CONTROL_OF_ANOTHER_ENGINE",
    )


def sweep_engines(lease_dir: Path) -> tuple[Leftover, ...]:
    """End what dead owners left behind and report every lease that was found."""
    return sweep_leftovers(lease_dir)
