"""The rows of one block as columns, before clocks, sorting and counting."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault, mark_tokens

NO_STAMP = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Time stamps as the file has them, shape (n,).

    number: float64 in the file's unit (NaN where unreadable), or None for ISO stamps.
    ns: int64 nanoseconds of the stamp, UTC where ``zoned``, else wall clock; or None.
    """

    faults: NDArray[np.uint8]
    number: NDArray[np.float64] | None = None
    ns: NDArray[np.int64] | None = None
    zoned: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Columns of shape (n,); ``faults`` holds a Fault a row, values of faulty rows mean nothing."""

    lines: NDArray[np.int64]
    stamps: Stamps
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    faults: NDArray[np.uint8]
    blocks: list[tuple[int, ...]] | None = None
    session: list[str] | None = None


def row_block(
    *,
    lines: NDArray[np.int64],
    stamps: Stamps,
    prompt: NDArray[np.float64],
    output: NDArray[np.float64],
    faults: NDArray[np.uint8],
    blocks: list[tuple[int, ...]] | None = None,
    session: list[str] | None = None,
) -> RowBlock:
    """Merge the faults of stamps and lengths into those of the rows and fix the dtypes."""
    merged = np.where(faults == Fault.NONE, stamps.faults, faults).astype(np.uint8)
    mark_tokens(
        merged,
        prompt,
        not_whole=Fault.PROMPT_NOT_WHOLE,
        negative=Fault.PROMPT_NEGATIVE,
        too_large=Fault.PROMPT_TOO_LARGE,
    )
    mark_tokens(
        merged,
        output,
        not_whole=Fault.OUTPUT_NOT_WHOLE,
        negative=Fault.OUTPUT_NEGATIVE,
        too_large=Fault.OUTPUT_TOO_LARGE,
    )
    good = merged == Fault.NONE
    return RowBlock(
        lines=lines,
        stamps=stamps,
        prompt=np.where(good, prompt, 0).astype(np.int64),
        output=np.where(good, output, 0).astype(np.int64),
        faults=merged,
        blocks=blocks,
        session=session,
    )
