"""The plan of one arm of a study: checks, memory and roofline of a model with some values."""

from dataclasses import dataclass

from tasks.domain.catalogue.check import check_values
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.engine_launch import CPU_DEFAULTS
from tasks.domain.errors import InvalidParameterError
from tasks.domain.hardware import DeviceSpec, Flavour
from tasks.domain.kv_pool import LengthProfile, kv_element_bytes, model_element_bytes
from tasks.domain.memory_plan import MemoryPlan, memory_plan
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValues
from tasks.domain.problem import Problem, errors
from tasks.domain.roofline import Roofline, roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRequest:
    """A checkpoint's model and the values to try it with."""

    name: str
    model: ModelSpec
    values: ParameterValues


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPlan:
    """What is known of an arm before it runs.

    memory and roofline are None when the values are so wrong that nothing can be computed; the
    problems say why.
    """

    name: str
    values: ParameterValues
    tensor_parallel_size: int
    memory: MemoryPlan | None
    roofline: Roofline | None
    problems: tuple[Problem, ...]

    @property
    def feasible(self) -> bool:
        """Whether the engine can start."""
        return self.memory is not None and not errors(self.problems)


def plan_arm(
    arm: ArmRequest,
    *,
    device: DeviceSpec,
    lengths: LengthProfile | None,
    installed: InstalledEngine | None,
    free_bytes: int | None,
    cpu_kv_space_gib: float | None,
) -> ArmPlan:
    """Return the arm's plan; roofline at one stream of mean length, or of 512 tokens.

    On a CPU the values that every launch there gets are put under the arm's own.
    """
    values = arm.values
    if device.flavour is Flavour.CPU:
        values = ParameterValues.of(dict(CPU_DEFAULTS)).overriding(arm.values.as_dict())
    problems = check_values(values, installed=installed, model=arm.model, device=device)
    asked = arm.values.get("tensor_parallel_size")
    memory, bounds = None, None
    try:
        memory = memory_plan(
            arm.model,
            device,
            values,
            lengths=lengths,
            flavour=device.flavour,
            free_bytes=free_bytes,
            cpu_kv_space_gib=cpu_kv_space_gib,
            engine_version=None if installed is None else installed.version,
        )
        bounds = _bounds(arm.model, device, memory, lengths)
        problems += memory.problems
    except InvalidParameterError as error:
        if not errors(problems):
            problems += (Problem(code=error.code, name="values", sentence=str(error)),)
    return ArmPlan(
        name=arm.name,
        values=arm.values,
        tensor_parallel_size=asked if isinstance(asked, int) and asked > 0 else 1,
        memory=memory,
        roofline=bounds,
        problems=problems,
    )


def _bounds(
    model: ModelSpec, device: DeviceSpec, memory: MemoryPlan, lengths: LengthProfile | None
) -> Roofline:
    effective = memory.effective
    element = model_element_bytes(model, effective.dtype)
    tokens = 512 if lengths is None else lengths.prompt_mean
    return roofline(
        model,
        device,
        batch=1,
        context_tokens=tokens,
        prompt_tokens=tokens,
        element_bytes=element,
        kv_element_bytes=kv_element_bytes(effective.kv_cache_dtype, element),
        tensor_parallel=effective.tensor_parallel_size,
    )
