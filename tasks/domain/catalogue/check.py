"""Check an assignment of values before an engine is started with it."""

from tasks.domain.catalogue.effective import effective_values, integer, model_len
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.catalogue.lookup import absence, find, has_argument
from tasks.domain.catalogue.row import Kind, Row
from tasks.domain.errors import InvalidParameterError
from tasks.domain.feasibility import dtype_problems, model_parallel_problems, scheduler_problems
from tasks.domain.hardware import DeviceClass, DeviceSpec
from tasks.domain.model_spec import ModelSpec
from tasks.domain.parameters import ParameterValue, ParameterValues
from tasks.domain.problem import Problem, Severity

_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.INT: (int,),
    Kind.FLOAT: (int, float),
    Kind.BOOL: (bool,),
    Kind.CHOICE: (str,),
    Kind.TEXT: (str,),
    Kind.JSON: (str,),
}


def check_values(
    values: ParameterValues,
    *,
    installed: InstalledEngine | None,
    model: ModelSpec | None,
    device: DeviceSpec,
) -> tuple[Problem, ...]:
    """Return everything that is wrong with the values: names, types, ranges, then couplings.

    Without ``installed`` the catalogue's versions stand in for the engine's own argument list, and
    what rests on them is a warning. Couplings are judged only when the types are right.
    """
    found: list[Problem] = []
    for name, value in values.items:
        found.extend(_existence(name, installed))
        row = find(name)
        if row is not None:
            found.extend(_value_problems(row, value, installed))
    if any(p.code in {"VALUE_TYPE", "VALUE_RANGE"} for p in found):
        return tuple(found)
    return tuple(found) + _couplings(values, installed=installed, model=model, device=device)


def _existence(name: str, installed: InstalledEngine | None) -> tuple[Problem, ...]:
    row = find(name)
    removed = None if row is None else row.removed
    if installed is not None:
        if has_argument(name, installed):
            return ()
        guessed = not installed.arguments and row is None
        return (
            Problem(
                code="UNKNOWN_ENGINE_ARGUMENT",
                name=name,
                severity=Severity.WARNING if guessed else Severity.ERROR,
                sentence=absence(name, installed),
                since=removed,
            ),
        )
    if row is None or removed is not None:
        gone = "is not in the catalogue" if row is None else f"was removed in {removed}"
        return (
            Problem(
                code="UNKNOWN_ENGINE_ARGUMENT",
                name=name,
                severity=Severity.WARNING,
                sentence=f"{name} {gone} and no installed engine was asked; probe the engine",
                since=removed,
            ),
        )
    return ()


def _value_problems(
    row: Row, value: ParameterValue, installed: InstalledEngine | None
) -> tuple[Problem, ...]:
    if any(value == special for special, _ in row.special):
        return ()
    boolean = isinstance(value, bool)
    if not isinstance(value, _TYPES[row.kind]) or (boolean and row.kind is not Kind.BOOL):
        sentence = f"{row.name}={value!r} is not of type {row.kind.value}; correct it"
        return (Problem(code="VALUE_TYPE", name=row.name, sentence=sentence),)
    argument = None if installed is None else installed.argument(row.name)
    choices = argument.choices if argument is not None and argument.choices else row.choices
    if choices and str(value) not in choices:
        sentence = f"{row.name}={value!r} is not among {', '.join(choices)}; pick one of them"
        return (Problem(code="VALUE_RANGE", name=row.name, sentence=sentence, supported=choices),)
    if isinstance(value, int | float) and not boolean and not _inside(row, float(value)):
        low = "" if row.low is None else f"{'>' if row.low_open else '>='} {row.low:g}"
        high = "" if row.high is None else f"<= {row.high:g}"
        wanted = " and ".join(part for part in (low, high) if part)
        sentence = f"{row.name}={value!r} is out of range; it must be {wanted}"
        return (Problem(code="VALUE_RANGE", name=row.name, sentence=sentence),)
    return ()


def _inside(row: Row, value: float) -> bool:
    if row.low is not None and (value < row.low or (row.low_open and value == row.low)):
        return False
    return row.high is None or value <= row.high


def _couplings(
    values: ParameterValues,
    *,
    installed: InstalledEngine | None,
    model: ModelSpec | None,
    device: DeviceSpec,
) -> tuple[Problem, ...]:
    model_max = None if model is None else model.max_position_embeddings
    try:
        effective = effective_values(values, device=device, model_max_len=model_max)
        threshold = integer(values, "long_prefill_token_threshold") or 0
    except InvalidParameterError as error:
        return (Problem(code="VALUE_TYPE", name="values", sentence=str(error)),)
    found = scheduler_problems(
        max_num_seqs=effective.max_num_seqs,
        max_num_batched_tokens=effective.max_num_batched_tokens,
        max_model_len=effective.max_model_len,
        enable_chunked_prefill=effective.enable_chunked_prefill,
        long_prefill_token_threshold=threshold,
    )
    found += _device_problems(values, device)
    if model is None:
        return found
    found += model_parallel_problems(model, effective.tensor_parallel_size)
    asked = values.get("quantization")
    method = asked if isinstance(asked, str) else None
    if method is None and model.quantization is not None:
        method = model.quantization.method
    found += dtype_problems(
        version=None if installed is None else installed.version,
        model_type=model.model_type,
        quantization=method,
        dtype=effective.dtype,
    )
    return found + _length_problems(values, model)


def _device_problems(values: ParameterValues, device: DeviceSpec) -> tuple[Problem, ...]:
    found: list[Problem] = []
    block = integer(values, "block_size")
    if device.device_class is DeviceClass.CPU and block is not None and block % 32 != 0:
        sentence = (
            f"block_size={block} is not a multiple of 32, which the CPU build needs: it compiles "
            "for minutes and then dies; use 32, 64 or 128"
        )
        found.append(Problem(code="BLOCK_SIZE_CPU", name="block_size", sentence=sentence))
    both = ("kv_cache_memory_bytes", "gpu_memory_utilization")
    if all(values.get(name) is not None for name in both):
        sentence = (
            "kv_cache_memory_bytes and gpu_memory_utilization are both set; the first decides the "
            "pool and the second only the check of free memory; drop one"
        )
        found.append(
            Problem(
                code="KV_SIZE_TWICE", name=both[0], sentence=sentence, severity=Severity.WARNING
            )
        )
    return tuple(found)


def _length_problems(values: ParameterValues, model: ModelSpec) -> tuple[Problem, ...]:
    limit, asked = model.max_position_embeddings, model_len(values, None)
    if limit is None or asked is None or asked <= limit:
        return ()
    sentence = (
        f"max_model_len={asked} is above max_position_embeddings={limit} of {model.name}; the "
        f"engine refuses; use at most {limit}"
    )
    return (Problem(code="MODEL_LEN_ABOVE_MODEL", name="max_model_len", sentence=sentence),)
