import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.engine_launch import EngineLaunch, command_line
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour
from tasks.domain.parameters import ParameterValue, ParameterValues


def launch(
    values: dict[str, ParameterValue],
    *,
    flavour: Flavour = Flavour.CPU,
    profile_dir: str | None = None,
    port: int | None = 8100,
) -> EngineLaunch:
    return EngineLaunch(
        model_dir="/models/m",
        served_name="m-1",
        python="/venv/bin/python",
        port=port,
        flavour=flavour,
        profile_dir=profile_dir,
        values=ParameterValues.of(values),
        extra_args=("--load-format", "dummy"),
    )


def test_the_cpu_build_runs_its_server_module_with_its_defaults() -> None:
    assert command_line(launch({})) == (
        "/venv/bin/python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "/models/m",
        "--served-model-name",
        "m-1",
        "--host",
        "127.0.0.1",
        "--port",
        "8100",
        "--dtype",
        "float32",
        "--enforce-eager",
        "--load-format",
        "dummy",
    )


def test_the_cuda_build_runs_the_commands_module_without_cpu_defaults() -> None:
    argv = command_line(launch({}, flavour=Flavour.CUDA))
    assert argv[1:5] == ("-m", "vllm.entrypoints.cli.main", "serve", "/models/m")
    assert "--dtype" not in argv
    assert "--enforce-eager" not in argv


def test_values_override_the_cpu_defaults() -> None:
    argv = command_line(launch({"dtype": "bfloat16", "enforce_eager": False}))
    assert argv[argv.index("--dtype") + 1] == "bfloat16"
    assert "--no-enforce-eager" in argv
    assert "--enforce-eager" not in argv


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("enable_prefix_caching", True, ("--enable-prefix-caching",)),
        ("enable_prefix_caching", False, ("--no-enable-prefix-caching",)),
        ("max_num_seqs", 16, ("--max-num-seqs", "16")),
        ("gpu_memory_utilization", 0.9, ("--gpu-memory-utilization", "0.9")),
        ("kv_cache_dtype", "fp8", ("--kv-cache-dtype", "fp8")),
    ],
)
def test_a_value_becomes_vllms_own_flag(
    name: str, value: ParameterValue, words: tuple[str, ...]
) -> None:
    argv = command_line(launch({name: value}, flavour=Flavour.CUDA))
    assert argv[-2 - len(words) : -2] == words


def test_a_profile_directory_becomes_a_profiler_config() -> None:
    argv = command_line(launch({}, profile_dir="/traces"))
    config = json.loads(argv[argv.index("--profiler-config") + 1])
    assert config == {
        "profiler": "torch",
        "torch_profiler_dir": "/traces",
        "torch_profiler_with_stack": False,
    }


@pytest.mark.parametrize("name", ["--max-num-seqs", "Max_Seqs", "port", "served_model_name", ""])
def test_a_name_that_is_not_an_argument_or_is_reserved_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name or "''"):
        command_line(launch({name: 1}))


def test_a_port_must_be_chosen_first() -> None:
    with pytest.raises(InvalidParameterError, match="port=None"):
        command_line(launch({}, port=None))


@given(
    st.dictionaries(
        st.from_regex(r"x_[a-z]{1,8}", fullmatch=True),
        st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.just("auto")),
        max_size=5,
    )
)
def test_equal_assignments_give_equal_command_lines(values: dict[str, ParameterValue]) -> None:
    backwards = dict(reversed(list(values.items())))
    assert command_line(launch(values)) == command_line(launch(backwards))


def test_live_knobs_load_the_scheduler_plugin_and_no_other() -> None:
    live = replace(launch({"max_num_seqs": 16}), live_knobs=True)
    argv = command_line(live)
    assert argv[argv.index("--scheduler-cls") + 1] == "retune_scheduler.RetuneScheduler"
    assert "--scheduler-cls" not in command_line(launch({}))
    other = replace(launch({"scheduler_cls": "my.Scheduler"}), live_knobs=True)
    with pytest.raises(InvalidParameterError, match="both choose the scheduler"):
        command_line(other)
