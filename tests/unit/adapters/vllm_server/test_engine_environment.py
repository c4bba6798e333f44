from pathlib import Path

import pytest

from tasks.adapters.vllm_server.environment import TOKEN_VARIABLE, cpu_list, engine_environment
from tasks.domain.engine_launch import EngineLaunch
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour


def build(
    inherited: dict[str, str],
    *,
    flavour: Flavour = Flavour.CPU,
    kv_cache_gib: float | None = None,
    env: tuple[tuple[str, str], ...] = (),
) -> dict[str, str]:
    launch = EngineLaunch(
        model_dir="/m",
        served_name="m",
        python="python",
        flavour=flavour,
        kv_cache_gib=kv_cache_gib,
        env=env,
    )
    return engine_environment(launch, inherited=inherited, token="t0", cpus=(0, 1))


def test_only_harmless_variables_are_inherited() -> None:
    inherited = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "PYTHONPATH": "/repository",
        "PROMETHEUS_MULTIPROC_DIR": "/prom",
        "MLFLOW_TRACKING_PASSWORD": "p",
        "HF_TOKEN": "h",
        "VLLM_API_KEY": "k",
        "NVIDIA_API_KEY": "n",
        "OMP_NUM_THREADS": "1",
    }
    environment = build(inherited)
    kept = {name for name in inherited if name in environment}
    assert kept == {"PATH", "CUDA_VISIBLE_DEVICES"}


def test_offline_silent_and_marked() -> None:
    environment = build({})
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["DO_NOT_TRACK"] == "1"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["SPT_NOENV"] == "1"
    assert environment[TOKEN_VARIABLE] == "t0"


def test_the_cpu_build_gets_all_cores_and_its_cache_size() -> None:
    environment = build({}, kv_cache_gib=2.0)
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in build({}, flavour=Flavour.CUDA)
    assert "VLLM_CPU_KVCACHE_SPACE" not in build({})


def test_the_launch_has_the_last_word_except_for_the_token() -> None:
    environment = build({}, env=(("PYTHONPATH", "/plugin"), (TOKEN_VARIABLE, "forged")))
    assert environment["PYTHONPATH"] == "/plugin"
    assert environment[TOKEN_VARIABLE] == "t0"


@pytest.mark.parametrize("gib", [0.5, 1.5, 0.0, -1.0])
def test_a_cache_size_that_the_cpu_build_cannot_read_is_refused(gib: float) -> None:
    with pytest.raises(InvalidParameterError, match="kv_cache_gib"):
        build({}, kv_cache_gib=gib)


@pytest.mark.parametrize(
    ("cpus", "text"), [((0, 1, 2, 3), "0-3"), ((5,), "5"), ((7, 2, 3, 0), "0,2-3,7")]
)
def test_cores_are_written_as_ranges(cpus: tuple[int, ...], text: str) -> None:
    assert cpu_list(cpus) == text


def test_live_knobs_put_the_plugin_alone_before_the_launchs_own_path(tmp_path: Path) -> None:
    launch = EngineLaunch(
        model_dir="/m", served_name="m", python="python", env=(("PYTHONPATH", "/own"),)
    )
    environment = engine_environment(
        launch, inherited={}, token="t0", cpus=(0,), control_dir=tmp_path
    )
    plugin, own = environment["PYTHONPATH"].split(":")
    assert own == "/own"
    assert [path.name for path in Path(plugin).glob("*.py")] == ["retune_scheduler.py"]
    assert environment["RETUNE_CONTROL_DIR"] == str(tmp_path)
    assert "RETUNE_CONTROL_DIR" not in build({})
