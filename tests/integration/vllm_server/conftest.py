from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.adapters.vllm_server.launch import start_engine
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.engine_launch import EngineLaunch
from tests.fakes.scripted_engine import write_interpreter

Starter = Callable[..., RunningEngine]


@pytest.fixture
def lease_dir(tmp_path: Path) -> Path:
    return tmp_path / "leases"


@pytest.fixture
def launch(tmp_path: Path) -> EngineLaunch:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return EngineLaunch(
        model_dir=str(model),
        served_name="m-1",
        python=write_interpreter(tmp_path),
        startup_timeout_s=60.0,
        stop_timeout_s=10.0,
    )


@pytest.fixture
def start(launch: EngineLaunch, tmp_path: Path, lease_dir: Path) -> Iterator[Starter]:
    """Start scripted engines: settings become SCRIPTED_* variables, ``change`` the launch."""
    engines: list[RunningEngine] = []

    def begin(change: dict[str, object] | None = None, **settings: object) -> RunningEngine:
        env = tuple((f"SCRIPTED_{name.upper()}", str(value)) for name, value in settings.items())
        changed = replace(launch, env=env, **(change or {}))  # type: ignore[arg-type]
        workdir = tmp_path / f"work{len(engines)}"
        engine = start_engine(changed, workdir=workdir, lease_dir=lease_dir)
        engines.append(engine)
        return engine

    yield begin
    for engine in engines:
        engine.stop()
