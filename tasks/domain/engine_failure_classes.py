"""The failure classes of vLLM as rows; the first row whose pattern matches a cause wins.

Each pattern was read in vLLM 0.24.0 or 0.32.0 unless its comment names another version.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """One kind of failure.

    Named groups of the pattern become details. derived: (new detail, detail it is copied from).
    advice_with_estimate: used where ``estimated_max_model_len`` is known.
    """

    code: str
    pattern: re.Pattern[str]
    infeasible: bool
    retry: bool
    advice: str
    advice_with_estimate: str = ""
    derived: tuple[tuple[str, str], ...] = ()


def _never(code: str, pattern: str, advice: str, **more: str) -> FailureClass:
    """Return a class whose trial fails again when tried again."""
    return FailureClass(
        code=code,
        pattern=re.compile(pattern),
        infeasible=True,
        retry=False,
        advice=advice,
        advice_with_estimate=more.get("with_estimate", ""),
    )


def _again(code: str, pattern: str, advice: str) -> FailureClass:
    """Return a class that one more try may cure."""
    return FailureClass(
        code=code, pattern=re.compile(pattern), infeasible=False, retry=True, advice=advice
    )


_KV_ADVICE = "lower max_model_len, raise gpu_memory_utilization or load fewer GiB of weights"
_KV_ESTIMATE = (
    "lower max_model_len to at most {estimate}, raise gpu_memory_utilization or load fewer GiB "
    "of weights"
)
_TP_ADVICE = (
    "lower tensor_parallel_size, or quantize with a group size that divides each rank's share"
)
_MODEL_ADVICE = "give the directory that holds the checkpoint's config.json and weights"

CLASSES: tuple[FailureClass, ...] = (
    _never(
        "LIVE_KNOBS_REFUSED",
        r"retune_scheduler: (?P<reason>.*?);",
        "start it without live_knobs, or correct what the message names",
    ),
    _never(
        "KV_CACHE_TOO_SMALL",
        r"max seq len \((?P<max_model_len>\d+)\), "
        r"\((?P<needed_gib>[\d.]+) GiB KV cache is needed.*?"
        r"KV cache memory \((?P<available_gib>-?[\d.]+) GiB\)"
        r"(?:.*?estimated maximum model length is (?P<estimated_max_model_len>\d+))?",
        _KV_ADVICE,
        with_estimate=_KV_ESTIMATE,
    ),
    FailureClass(  # V0
        code="KV_CACHE_TOO_SMALL",
        pattern=re.compile(
            r"max seq len \((?P<max_model_len>\d+)\) is larger than the maximum number of tokens "
            r"that can be stored in KV cache \((?P<kv_cache_tokens>\d+)\)"
        ),
        infeasible=True,
        retry=False,
        advice=_KV_ADVICE,
        advice_with_estimate=_KV_ESTIMATE,
        derived=(("estimated_max_model_len", "kv_cache_tokens"),),
    ),
    _never(
        "NO_MEMORY_FOR_KV_CACHE",
        r"No available memory for the cache blocks",
        "no memory is left for it: raise gpu_memory_utilization or load fewer GiB of weights",
    ),
    _again(
        "GPU_BUSY",
        r"Free memory on device (?P<device>[\w:]*) ?"
        r"\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\)"
        r" on startup is less than.*?\((?P<utilization>[\d.]+), (?P<asked_gib>[\d.]+) GiB\)",
        "another process holds memory of this GPU: end it, or lower gpu_memory_utilization",
    ),
    _again(
        "HOST_MEMORY_BUSY",
        r"Available memory on node (?P<node>\d+) \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\)"
        r" on startup is less than desired CPU memory utilization \((?P<utilization>[\d.]+), "
        r"(?P<asked_gib>[\d.]+) GiB\)",
        "give the KV cache a size (cpu_kv_cache_gib of the model), or lower gpu_memory_utilization",
    ),
    _never(
        "CUDA_OOM",
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens",
    ),
    _never(
        "HOST_OUT_OF_MEMORY",
        r"DefaultCPUAllocator: can't allocate memory|std::bad_alloc|^MemoryError"
        r"|Cannot allocate memory",
        "give the engine a smaller KV cache or checkpoint, or the host more memory",
    ),
    _never(
        "UNKNOWN_ENGINE_ARGUMENT",
        r"unrecognized arguments: (?P<argument>--?[\w-]+)",
        "remove the argument: the installed vLLM does not know it",
    ),
    _never(
        "DTYPE_NOT_SUPPORTED",
        r"(?P<dtype>(?:torch\.)?\w+) is not supported for quantization method "
        r"(?P<quantization>[\w-]+)\. Supported dtypes: \[(?P<supported>[^\]]*)\]",
        "leave dtype at auto or use one that the method supports; where the model refuses those, "
        "upgrade vLLM",
    ),
    _never(
        "DTYPE_NOT_SUPPORTED_BY_MODEL",
        r"model type '(?P<model_type>[\w-]+)' does not support (?P<dtype>\w+)",
        "leave dtype at auto",
    ),
    _never(
        "QUANT_SHAPE_NOT_DIVISIBLE",
        r"(?:in|out)put size is not aligned with the quantized weight shape"
        r"|(?P<dimension>\w+_per_partition) = (?P<size>\d+) is not divisible by "
        r"(?P<divisor_name>\w+) ?= ?(?P<divisor>\d+)",
        _TP_ADVICE,
    ),
    _never(
        "MISSING_KERNEL",
        r"'_OpNamespace' '\w+' object has no attribute '(?P<kernel>\w+)'"
        r"|Failed to find a kernel that can implement the (?P<layer>[\w ]+)"
        r"|no kernel image is available for execution"
        r"|Could not run '(?P<operator>[\w:.]+)' with arguments from the"
        r'|"(?P<function>\w+)" not implemented for \'(?P<dtype>\w+)\'',
        "serve the checkpoint dequantized, or on a device that has the kernel",
    ),
    _never(
        "BLOCK_SIZE_NOT_SUPPORTED",
        r"No common block size for (?P<block_size>\d+) \((?P<backends>.*?)\)\.?$"
        r"|argument --block-size: (?P<reason>invalid .*)",
        "leave block_size to the engine, or use a multiple that its attention backend names",
    ),
    _never(
        "NO_ATTENTION_BACKEND",
        r"No valid attention backend found for (?P<device>\w+)(?:.*Reasons: \{(?P<reasons>.*)\})?",
        "leave block_size, kv_cache_dtype and the attention backend to the engine",
    ),
    _again(
        "PORT_BUSY",
        r"Errno 98|[Aa]ddress already in use|EADDRINUSE",
        "end the process that listens there, or use another port",
    ),
    _never(
        "MODEL_NOT_FOUND",
        r"Invalid repository ID or local directory specified"
        r"|is not a local folder and is not a valid model identifier"
        r"|Repo id must (?:be in the form|use alphanumeric)"
        r"|does not appear to have a file named"
        r"|Cannot find any model weights with"
        r"|LocalEntryNotFoundError|couldn't connect to 'https://huggingface"
        r"|No such file or directory: '[^']*(?:config\.json|\.safetensors)'",
        _MODEL_ADVICE,
    ),
    _never(
        "MISSING_MODULE",
        r"No module named '(?P<module>[\w.]+)'"
        r"|(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "install it in the engine's environment",
    ),
    _never(
        "BAD_VALUE",
        r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size "
        r"\((?P<tensor_parallel_size>\d+)\)"
        r"|max_num_batched_tokens \((?P<max_num_batched_tokens>\d+)\) (?:is smaller than|must be "
        r"greater than or equal to) (?P<other>\w+) \((?P<other_value>\d+)\)"
        r"|argument (?P<argument>--[\w-]+)[^:]*: (?P<reason>.*)"
        r"|max_model_len \((?P<max_model_len>\d+)\) is greater than the derived"
        r"|larger than the (?:total )?number of available GPUs"
        r"|Input should be (?P<allowed>.*)|Extra inputs are not permitted"
        r"|ambiguous option: (?P<option>\S+)",
        "change the value that the message names",
    ),
    _again(
        "ENGINE_HUNG",
        r"RPC call to (?P<call>\w+) timed out|Timeout waiting for (?P<what>engine core|worker)",
        "the engine stopped answering inside; start it again and read its log if it repeats",
    ),
)
"""Order matters where a message fits two rows: the narrower one stands first."""
