"""The KV cache size lines of four vLLM generations.

The token count is the log's own where it says one; only V0's block counts are multiplied by the
block size, which is wrong for hybrid models and is marked as derived.
"""

import re
from dataclasses import dataclass

from tasks.domain.engine_log import LogLine, engine_index, log_lines

DISAGREEMENT_FRAC = 0.01
"""Share by which the log and /metrics may differ before it is said."""

_SIZE = re.compile(r"(?P<device>\w+) KV cache size: (?P<tokens>[\d,]+) tokens")
_CONCURRENCY = re.compile(
    r"Maximum concurrency for (?P<len>[\d,]+) tokens per request: (?P<times>[\d,.]+)x"
)
_BLOCKS = re.compile(r"# (?P<device>\w+) blocks: (?P<blocks>[\d,]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheLine:
    """What one line says of the KV cache.

    engine: data-parallel index, None for a single engine. kv_tokens_source: ``log`` or
    ``blocks*block_size``. max_concurrency: requests of max_model_len tokens that fit at once.
    """

    process: str | None = None
    engine: int | None = None
    device: str | None = None
    device_blocks: int | None = None
    cpu_blocks: int | None = None
    kv_tokens: int | None = None
    kv_tokens_source: str | None = None
    max_model_len: int | None = None
    max_concurrency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheTotal:
    """The KV cache over all engines of one start.

    restarted: one engine printed its size more than once, so the log holds more than one start;
    the last size of each engine counts.
    """

    engines: int
    kv_tokens: int | None
    restarted: bool


def kv_cache_lines(text: str, *, block_size: int | None = None) -> tuple[KvCacheLine, ...]:
    """Return what each KV cache line says, in order."""
    parsed = (_parse(line, block_size) for line in log_lines(text))
    return tuple(line for line in parsed if line is not None)


def kv_cache_total(lines: tuple[KvCacheLine, ...]) -> KvCacheTotal:
    """Return the tokens summed over the engines that printed a size."""
    sizes: dict[int | None, int] = {}
    restarted = False
    for line in lines:
        if line.kv_tokens is None:
            continue
        restarted = restarted or line.engine in sizes
        sizes[line.engine] = line.kv_tokens
    return KvCacheTotal(
        engines=len(sizes), kv_tokens=sum(sizes.values()) if sizes else None, restarted=restarted
    )


def kv_cache_disagrees(log_tokens: int, metrics_tokens: int) -> bool:
    """Tell whether log and /metrics differ by more than 1 % of the larger."""
    return abs(log_tokens - metrics_tokens) > DISAGREEMENT_FRAC * max(log_tokens, metrics_tokens)


def _parse(line: LogLine, block_size: int | None) -> KvCacheLine | None:
    size = _SIZE.search(line.text)
    concurrency = _CONCURRENCY.search(line.text)
    if size is not None or concurrency is not None:
        return KvCacheLine(
            process=line.process,
            engine=engine_index(line.process),
            device=None if size is None else size["device"],
            kv_tokens=None if size is None else _int(size["tokens"]),
            kv_tokens_source=None if size is None else "log",
            max_model_len=None if concurrency is None else _int(concurrency["len"]),
            max_concurrency=None if concurrency is None else _float(concurrency["times"]),
        )
    blocks = {match["device"]: _int(match["blocks"]) for match in _BLOCKS.finditer(line.text)}
    if not blocks:
        return None
    device = next((name for name in blocks if name != "CPU"), "CPU")
    tokens = None if block_size is None else blocks[device] * block_size
    return KvCacheLine(
        process=line.process,
        engine=engine_index(line.process),
        device=device,
        device_blocks=blocks[device],
        cpu_blocks=blocks.get("CPU") if device != "CPU" else None,
        kv_tokens=tokens,
        kv_tokens_source=None if tokens is None else "blocks*block_size",
    )


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def _float(text: str) -> float:
    return float(text.replace(",", ""))
