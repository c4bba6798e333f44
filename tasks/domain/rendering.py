"""What a deployment of a parameter set needs: arguments, environment variables, provenance.

The arguments are those that the measured engine was started with, made by the same function; only
the model's place, the address and the served name are the deployment's own.
"""

import shlex
from dataclasses import dataclass

from tasks.domain.catalogue.check import check_values
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.engine_launch import EngineLaunch, command_line
from tasks.domain.errors import ConfigError, InvalidParameterError
from tasks.domain.hardware import DeviceSpec, Flavour, cpu, gpu, gpus
from tasks.domain.parameters import ParameterSet, ParameterValues
from tasks.domain.problem import Severity
from tasks.domain.set_registry import registered_name

PORT = 8000
CPU_PROGRAM = ("python3", "-m", "vllm.entrypoints.openai.api_server")
CUDA_PROGRAM = ("vllm", "serve")
_CUDA_IMAGE = "vllm/vllm-openai:v"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A parameter set that is to be served.

    model: a folder or a hub's name as the engine will see it. image: of the container. sha256: of
    the set's file, None where it was read from none.
    """

    parameter_set: ParameterSet
    model: str
    image: str | None = None
    sha256: str | None = None
    host: str = "0.0.0.0"
    port: int = PORT

    @property
    def values(self) -> ParameterValues:
        """What the engine is started with: the model's own values as measured, then the set's."""
        measured = self.parameter_set.provenance.engine_values
        return measured.overriding(self.parameter_set.values.as_dict())

    @property
    def flavour(self) -> Flavour:
        """The build that the set was measured on; of a set without a device, CUDA."""
        origin = self.parameter_set.provenance
        if origin.flavour is not None:
            return Flavour(origin.flavour)
        named = (origin.hardware or "NVIDIA").split()[0]
        return Flavour.CUDA if named in ("NVIDIA", "Tesla") else Flavour.CPU

    @property
    def gpu_count(self) -> int:
        """GPUs that one engine takes: the product of its parallel sizes, 0 on a CPU."""
        if self.flavour is Flavour.CPU:
            return 0
        count = 1
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            size = self.values.get(name)
            count *= size if isinstance(size, int) and not isinstance(size, bool) else 1
        return count

    @property
    def program(self) -> tuple[str, ...]:
        """The command before the arguments; the CPU wheel's own ``vllm`` command does not start."""
        return CPU_PROGRAM if self.flavour is Flavour.CPU else CUDA_PROGRAM

    @property
    def container_image(self) -> str:
        """The image that was named, else vLLM's own of the set's version.

        Raises:
            ConfigError: IMAGE_NEEDED where no image of this engine is known.
        """
        if self.image is not None:
            return self.image
        engine = self.engine
        if self.flavour is Flavour.CUDA and engine is not None:
            return f"{_CUDA_IMAGE}{engine.partition('+')[0]}"
        raise ConfigError(
            f"set {self.parameter_set.name!r} is for vLLM {engine or '(no version known)'} on "
            f"{self.flavour.value}, for which no image is known; name one with --image",
            code="IMAGE_NEEDED",
        )

    @property
    def engine(self) -> str | None:
        """The version of vLLM that the set was measured on, None where it is unknown."""
        engine = self.parameter_set.provenance.engine
        return None if engine == "unknown" else engine

    @property
    def served_name(self) -> str:
        """The name that clients ask for: the model's."""
        return self.parameter_set.model


def default_model_path(parameter_set: ParameterSet) -> str:
    """Return where a container finds the checkpoint unless told otherwise."""
    suffix = "" if parameter_set.checkpoint == "reference" else f"-{parameter_set.checkpoint}"
    return f"/models/{parameter_set.model}{suffix}"


def arguments(deployment: Deployment) -> tuple[str, ...]:
    """Return the arguments after the program, as the product itself would start this engine.

    Raises:
        InvalidParameterError: a value's name is no argument name.
    """
    argv = command_line(
        EngineLaunch(
            model_dir=deployment.model,
            served_name=deployment.served_name,
            python="python3",
            values=deployment.values,
            flavour=deployment.flavour,
            host=deployment.host,
            port=deployment.port,
        )
    )
    head = 3 if deployment.flavour is Flavour.CPU else 4  # python -m module, and serve on CUDA
    return argv[head:]


def environment(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Return the variables that the measured engine had and that its speed depends on.

    The CPU build sizes its KV cache by a variable, and by default leaves one core unused.
    """
    if deployment.flavour is Flavour.CUDA:
        return (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)
    origin = deployment.parameter_set.provenance
    found: list[tuple[str, str]] = []
    if origin.cpu_kv_cache_gib is not None:
        found.append(("VLLM_CPU_KVCACHE_SPACE", f"{origin.cpu_kv_cache_gib:g}"))
    if origin.device_count is not None:
        cores = "0" if origin.device_count == 1 else f"0-{origin.device_count - 1}"
        found.append(("VLLM_CPU_OMP_THREADS_BIND", cores))
    return tuple(found)


def argument_line(deployment: Deployment) -> str:
    """Return the arguments as one line that a shell reads back as they are."""
    return shlex.join(arguments(deployment))


def environment_file(deployment: Deployment) -> str:
    """Return a file that a shell sources: the variables and ARGS, the arguments as one line."""
    lines = [f"# {name}: {value}" for name, value in provenance(deployment)]
    lines.append(f'# start: sh -c "exec {" ".join(deployment.program)} $ARGS"')
    lines += [f"{name}={shlex.quote(value)}" for name, value in environment(deployment)]
    lines.append(f"ARGS={shlex.quote(argument_line(deployment))}")
    return "\n".join(lines) + "\n"


def provenance(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Return what is known of the set, for comments and labels; one line a value."""
    parameter_set = deployment.parameter_set
    origin = parameter_set.provenance
    found = {
        "set": registered_name(parameter_set.model, parameter_set.regime),
        "state": parameter_set.state.value,
        "set-sha256": deployment.sha256,
        "checkpoint": parameter_set.checkpoint,
        "checkpoint-sha256": origin.checkpoint_sha256,
        "study-id": origin.study_id,
        "mlflow-run-ids": " ".join(origin.mlflow_run_ids) or None,
        "trace-sha256": origin.trace_sha256,
        "engine-version": origin.engine,
        "hardware": origin.hardware,
        "measured-on": origin.measured_on,
        "expires-on": origin.expires_on,
        "note": " ".join(parameter_set.note.split()) or None,
    }
    return tuple((name, value) for name, value in found.items() if value is not None)


def refuse_unknown_values(deployment: Deployment) -> tuple[str, ...]:
    """Return sentences of warning; refuse what the set's engine does not take.

    A name that the catalogue lacks passes only where the measured engine was started with it.

    Raises:
        InvalidParameterError: names every value that is unknown, of a wrong type or out of range.
    """
    origin = deployment.parameter_set.provenance
    installed = None
    if deployment.engine is not None:
        installed = InstalledEngine(
            version=deployment.engine, flavour=deployment.flavour, arguments=()
        )
    started_with = set(origin.engine_values.items)
    refused, told = [], []
    for problem in check_values(
        deployment.values, installed=installed, model=None, device=_device(deployment)
    ):
        unknown = problem.code == "UNKNOWN_ENGINE_ARGUMENT"
        value = deployment.values.get(problem.name)
        if problem.severity is Severity.ERROR or (
            unknown and (problem.name, value) not in started_with
        ):
            refused.append(problem.sentence)
        elif not unknown:
            told.append(problem.sentence)
    if refused:
        raise InvalidParameterError(
            f"set {deployment.parameter_set.name!r} cannot be served by vLLM "
            f"{deployment.engine or '(no version in its provenance)'}: {'; '.join(refused)}"
        )
    return tuple(told)


def _device(deployment: Deployment) -> DeviceSpec:
    if deployment.flavour is Flavour.CPU:
        return cpu(memory_bytes=None)
    try:
        return gpu(deployment.parameter_set.provenance.hardware or "")
    except ConfigError:
        return gpus()[0]  # only its class matters here: the catalogue asks for defaults by class
