"""What an engine's log says of the engine that started: sizes, seconds, kernels, warnings.

Reads text only; what the log does not say is None.
"""

import re
from dataclasses import dataclass

from tasks.domain.engine_log import LogLine, log_lines
from tasks.domain.engine_log_kv_cache import kv_cache_lines, kv_cache_total
from tasks.domain.engine_log_phases import PhaseTime, phase_times


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWarning:
    """Something that does not stop the engine but colours what is measured on it."""

    code: str
    sentence: str
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """An engine as its log describes it.

    kv_cache_tokens: over all data-parallel engines. kv_gib: memory given to the KV cache of one
    rank. weights_gib, weights_load_s, init_s, torch_compile_s: as printed. compile_cache: ``warm``
    (graphs came from disk), ``cold`` (compiled now), None (no compilation). startup_s: seconds
    from the start of the process to the first completion; set by whoever waited for it.
    non_default_args: as the engine understood them. phases: when each phase of the start began.
    """

    version: str | None = None
    model: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int | None = None
    quantization: str | None = None
    quantization_kernel: str | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    kv_cache_tokens: int | None = None
    kv_gib: float | None = None
    engines: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool | None = None
    weights_gib: float | None = None
    weights_load_s: float | None = None
    torch_compile_s: float | None = None
    compile_cache: str | None = None
    init_s: float | None = None
    startup_s: float | None = None
    non_default_args: tuple[tuple[str, str], ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    warnings: tuple[EngineWarning, ...] = ()

    @property
    def slow_kernel(self) -> bool:
        """Whether the engine said that it fell back to a slower kernel."""
        return any(warning.code == "SLOW_KERNEL" for warning in self.warnings)


_CONFIG = "Initializing a V"
_WARNINGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "BACKEND_CHANGED_BY_BLOCK_SIZE",
        re.compile(
            r"--block-size (?P<block_size>\d+) precluded higher-priority backend\(s\) "
            r"(?P<excluded>.*?)\. Using (?P<used>\w+) instead"
        ),
    ),
    ("SLOW_KERNEL", re.compile(r"Falling back to unoptimized (?P<method>\w+) kernels")),
    (
        "SLOW_KERNEL",
        re.compile(r"(?P<method>\w+) quantization is not fully optimized yet"),
    ),
    ("ONEDNN_FALLBACK", re.compile(r"Failed to create oneDNN linear, fallback to torch linear")),
    ("BLOCK_SIZE_UNLIKED", re.compile(r"CPU backend prefers block_size is multiples of 32")),
)


def facts_from_log(text: str, *, block_size: int | None = None) -> EngineFacts:
    """Return the facts in a log; block_size is needed only for V0's block counts."""
    lines = tuple(log_lines(text))
    body = "\n".join(line.text for line in lines)
    config = next((line.text for line in lines if line.text.startswith(_CONFIG)), "")
    kv_lines = kv_cache_lines(text, block_size=block_size)
    total = kv_cache_total(kv_lines)
    lengths = [line.max_model_len for line in kv_lines if line.max_model_len is not None]
    quantization = _first(r"\bquantization=(\w+),", config)
    return EngineFacts(
        version=_first(r"engine \(v([\w.+-]+)\) with config", config)
        or _first(r"\bversion ([\w.+-]+)\s*$", body),
        model=_first(r"config: model='([^']*)'", config),
        dtype=_first(r"[ ,]dtype=torch\.(\w+)", config),
        max_model_len=_int(_first(r"max_seq_len=(\d+)", config)) or next(iter(lengths), None),
        tensor_parallel_size=_int(_first(r"tensor_parallel_size=(\d+)", config)),
        quantization=None if quantization == "None" else quantization,
        quantization_kernel=_first(r"Using (\w+Kernel) for \S+", body),
        attention_backend=_attention_backend(body, config),
        kv_cache_dtype=_first(r"kv_cache_dtype=(\w+)", config),
        kv_cache_tokens=total.kv_tokens,
        kv_gib=_kv_gib(body),
        engines=total.engines or None,
        max_num_batched_tokens=_int(_first(r"max_num_batched_tokens=(\d+)", body)),
        enable_prefix_caching=_bool(_first(r"enable_prefix_caching=(True|False)", config)),
        enable_chunked_prefill=_bool(_first(r"enable_chunked_prefill=(True|False)", config)),
        enforce_eager=_bool(_first(r"enforce_eager=(True|False)", config)),
        weights_gib=_float(_first(r"Model loading took ([\d.]+) GiB", body)),
        weights_load_s=_float(
            _first(r"Loading weights took ([\d.]+) s", body)
            or _first(r"Model loading took [\d.]+ GiB and ([\d.]+) s", body)
        ),
        torch_compile_s=_float(_first(r"torch\.compile (?:took|takes) ([\d.]+) s in total", body)),
        compile_cache=_compile_cache(body),
        init_s=_float(_first(r"init engine \(.*?\) took ([\d.]+) s", body)),
        non_default_args=_non_default_args(lines),
        phases=phase_times(lines),
        warnings=_warnings(lines, restarted=total.restarted),
    )


def _attention_backend(body: str, config: str) -> str | None:
    named = _first(r"Using (\w+) instead, which may", body) or _first(
        r"Using (\w[\w ]*?) (?:attention )?backend\b(?! is)", body
    )
    # vLLM's CPU platform has this one backend and prints none (0.32).
    return named or ("CPU_ATTN" if "device_config=cpu" in config else None)


def _kv_gib(body: str) -> float | None:
    return _float(
        _first(r"Available KV cache memory: ([\d.]+) GiB", body)
        or _first(r"Explicitly set \(([\d.]+)/[\d.]+\) GiB for KV cache", body)
    )


def _compile_cache(body: str) -> str | None:
    if "Directly load the compiled graph" in body or "Directly load AOT compilation" in body:
        return "warm"
    return "cold" if re.search(r"Compiling a graph|saved AOT compiled function", body) else None


def _non_default_args(lines: tuple[LogLine, ...]) -> tuple[tuple[str, str], ...]:
    """Return the engine's own list of arguments, values as printed."""
    for line in lines:
        match = re.match(r"non-default args: \{(.*)\}\s*$", line.text)
        if match is not None:
            pairs = re.findall(r"'(\w+)': (.*?)(?=, '\w+': |$)", match[1])
            return tuple((name, value.strip("'\"")) for name, value in pairs)
    return ()


def _warnings(lines: tuple[LogLine, ...], *, restarted: bool) -> tuple[EngineWarning, ...]:
    found: dict[tuple[str, str], EngineWarning] = {}
    for line in lines:
        for code, pattern in _WARNINGS:
            match = pattern.search(line.text)
            if match is not None:
                details = tuple(sorted(match.groupdict().items()))
                warning = EngineWarning(code=code, sentence=line.text[:400], details=details)
                found.setdefault((code, match[0]), warning)
    if restarted:
        sentence = "one engine printed its KV cache size twice: this log holds several starts"
        found[("ENGINE_RESTARTED", "")] = EngineWarning(code="ENGINE_RESTARTED", sentence=sentence)
    return tuple(found.values())


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return None if match is None else match[1]


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _bool(text: str | None) -> bool | None:
    return None if text is None else text == "True"
