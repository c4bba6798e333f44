"""A traffic trace in memory: when requests came and how long they were. No prompt text."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNotes:
    """What was done to the rows of a file to make the trace, for people and for tests.

    ``rejected`` holds (line, reason) of at most the first 100 bad rows; ``rejected_rows`` counts
    all. ``warnings`` are codes with a sentence, for example ("ASSUMED_UTC", "…").
    ``dropped`` counts readable rows that were left out on purpose, by reason (zero_input,
    zero_output, over_context).
    """

    format: str
    rows: int
    rejected_rows: int = 0
    out_of_order_rows: int = 0
    rejected: tuple[tuple[int, str], ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests sorted by arrival; every array has shape (n,).

    arrival_s: float64, seconds from the first request, never negative.
    prompt_tokens, output_tokens: int64, at least 1.
    prefix_blocks: one tuple of block ids a request (equal id = reusable prefix block of
        ``prefix_block_tokens`` tokens), or None where the trace says nothing about reuse.
    session: one key a request for thinning by session, or None.
    sha256: of the source file's bytes, or of the traffic model and its seed.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    source: str
    sha256: str
    notes: TraceNotes
    prefix_blocks: tuple[tuple[int, ...], ...] | None = None
    prefix_block_tokens: int = 512
    session: tuple[str, ...] | None = None
    origin_utc: str | None = field(default=None)

    def __len__(self) -> int:
        """Return the number of requests."""
        return int(self.arrival_s.shape[0])

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last arrival; 0 for fewer than two requests."""
        return float(self.arrival_s[-1]) if len(self) > 1 else 0.0
