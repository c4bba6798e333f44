"""What to start: one engine with its values, and the command line that says so.

Knows the spelling of vLLM's command line; knows no process, port or file.
"""

import json
import re
from dataclasses import dataclass, field

from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import Flavour
from tasks.domain.parameters import ParameterValue, ParameterValues

CPU_DEFAULTS: tuple[tuple[str, ParameterValue], ...] = (
    ("dtype", "float32"),
    ("enforce_eager", True),
)
"""Values that the CPU build needs and that a launch may override (vLLM 0.32 on AVX2)."""

RESERVED = ("model", "served_model_name", "host", "port", "profiler_config")
"""Arguments that the launch record sets itself."""

LIVE_SCHEDULER = "retune_scheduler.RetuneScheduler"
"""The scheduler plug-in by the name that the engine imports."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunch:
    """One engine to start.

    model_dir: directory of the checkpoint. python: interpreter of the engine's environment.
    port: None lets a free one be chosen. extra_args: appended as they are. env: put over the
    environment that the product builds. startup_timeout_s: seconds without progress (log growth
    or CPU time of the process tree) after which the start is given up; startup_limit_s: seconds
    after which it is given up whatever moves. kv_cache_gib sizes the KV cache of the CPU build.
    profile_dir: where torch profiler traces go; None leaves the profiler off. live_knobs: load the
    scheduler plug-in, so that max_num_seqs and max_num_batched_tokens may move below the values
    given here while the engine runs.
    """

    model_dir: str
    served_name: str
    python: str
    values: ParameterValues = field(default_factory=ParameterValues)
    flavour: Flavour = Flavour.CPU
    host: str = "127.0.0.1"
    port: int | None = None
    extra_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    startup_timeout_s: float = 300.0
    startup_limit_s: float = 3_600.0
    stop_timeout_s: float = 20.0
    profile_dir: str | None = None
    kv_cache_gib: float | None = None
    live_knobs: bool = False


def command_line(launch: EngineLaunch) -> tuple[str, ...]:
    """Return the argument vector that starts the engine.

    The CPU wheel has no metadata for its ``vllm`` command, so its server module is run; on CUDA
    the command's own module is run. A port of None is an error here: choose one first.

    Raises:
        InvalidParameterError: a value's name is not an argument name, or is one that the launch
            sets itself; or the port is not chosen yet.
    """
    if launch.port is None:
        raise InvalidParameterError(
            f"port=None for {launch.served_name!r}; choose a port before the command line is made"
        )
    if launch.flavour is Flavour.CPU:
        head = ("-m", "vllm.entrypoints.openai.api_server", "--model", launch.model_dir)
    else:
        head = ("-m", "vllm.entrypoints.cli.main", "serve", launch.model_dir)
    argv = [launch.python, *head, "--served-model-name", launch.served_name]
    argv += ["--host", launch.host, "--port", str(launch.port)]
    for name, value in effective_values(launch).items:
        argv += _flag(name, value)
    if launch.profile_dir is not None:
        argv += ["--profiler-config", profiler_config(launch.profile_dir)]
    if launch.live_knobs:
        argv += _live_scheduler(launch.values)
    return (*argv, *launch.extra_args)


def profiler_config(trace_dir: str) -> str:
    """Return the JSON for ``--profiler-config`` that writes torch traces to an absolute folder.

    Python stacks are off (vLLM's default is on). Seen on 0.32.0 CPU for a window of two steps:
    6.4 MB and 35 s to stop with them (and the Worker's own table died of an undecodable name),
    74 kB and 7 s without.
    """
    return json.dumps(
        {
            "profiler": "torch",
            "torch_profiler_dir": trace_dir,
            "torch_profiler_with_stack": False,
        }
    )


def effective_values(launch: EngineLaunch) -> ParameterValues:
    """Return the values that reach the command line: the flavour's defaults, then the launch's."""
    if launch.flavour is Flavour.CPU:
        return ParameterValues.of(dict(CPU_DEFAULTS)).overriding(launch.values.as_dict())
    return launch.values


def _live_scheduler(values: ParameterValues) -> list[str]:
    other = values.get("scheduler_cls")
    if other is not None:
        raise InvalidParameterError(
            f"engine value scheduler_cls={other!r} and live_knobs both choose the scheduler; "
            "remove one of them"
        )
    return ["--scheduler-cls", LIVE_SCHEDULER]


def _flag(name: str, value: ParameterValue) -> list[str]:
    """Return one argument: ``--x``, ``--no-x`` or ``--x value``."""
    if not _NAME.fullmatch(name):
        raise InvalidParameterError(
            f"engine value {name!r} is not a vLLM argument name; write it with lower case and "
            "underscores, for example max_num_seqs"
        )
    if name in RESERVED:
        raise InvalidParameterError(
            f"engine value {name}={value!r} is set by the launch itself; remove it from the values"
        )
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
