"""How much of the prompts an ideal prefix cache would have held already."""

import math

import numpy as np
from numpy.typing import NDArray

from tasks.domain.trace import Trace


def reused_tokens(trace: Trace, *, horizon_s: float = math.inf) -> NDArray[np.int64] | None:
    """Return the prompt tokens of each request that were sent before, shape (n,), or None.

    Counts the leading blocks whose last use is at most ``horizon_s`` old, up to the first block
    that is not: a prefix cache cannot jump over a miss. None where the trace knows no blocks.
    """
    if trace.prefix_blocks is None:
        return None
    last: dict[int, float] = {}
    size = trace.prefix_block_tokens
    reused = np.zeros(len(trace), dtype=np.int64)
    arrivals: list[float] = trace.arrival_s.tolist()
    for row, (now, blocks) in enumerate(zip(arrivals, trace.prefix_blocks, strict=True)):
        hits = 0
        for block in blocks:
            if now - last.get(block, -math.inf) > horizon_s or block not in last:
                break
            hits += 1
        reused[row] = hits * size
        last.update(dict.fromkeys(blocks, now))
    return np.minimum(reused, trace.prompt_tokens)


def prefix_reuse_frac(trace: Trace) -> float | None:
    """Return reused prompt tokens / prompt tokens over the whole trace, or None if unknown."""
    reused = reused_tokens(trace)
    return None if reused is None else float(reused.sum() / trace.prompt_tokens.sum())
