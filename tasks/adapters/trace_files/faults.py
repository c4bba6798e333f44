"""Why a row of a trace file was refused: one small code a row, one sentence a code."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

# A longer request than this is a broken row, not traffic: no served context comes near it.
LARGEST_TOKENS = 100_000_000


class Fault(IntEnum):
    """A reason to refuse a row; NONE keeps it."""

    NONE = 0
    FIELDS = 1
    JSON = 2
    STAMP_MISSING = 3
    STAMP_UNREADABLE = 4
    STAMP_NOT_FINITE = 5
    STAMP_NEGATIVE = 6
    STAMP_WITHOUT_ZONE = 7
    PROMPT_NOT_WHOLE = 8
    OUTPUT_NOT_WHOLE = 9
    PROMPT_NEGATIVE = 10
    OUTPUT_NEGATIVE = 11
    PROMPT_TOO_LARGE = 12
    OUTPUT_TOO_LARGE = 13
    BLOCKS = 14
    PROMPT_NOT_LOGGED = 15
    OUTPUT_NOT_LOGGED = 16


REASONS: dict[Fault, str] = {
    Fault.FIELDS: "wrong number of fields",
    Fault.JSON: "not a JSON object",
    Fault.STAMP_MISSING: "time stamp is missing",
    Fault.STAMP_UNREADABLE: "time stamp is not readable",
    Fault.STAMP_NOT_FINITE: "time stamp is not finite",
    Fault.STAMP_NEGATIVE: "negative time stamp",
    Fault.STAMP_WITHOUT_ZONE: "time stamp without zone in a file with zones",
    Fault.PROMPT_NOT_WHOLE: "prompt tokens are not a whole number",
    Fault.OUTPUT_NOT_WHOLE: "output tokens are not a whole number",
    Fault.PROMPT_NEGATIVE: "prompt tokens are negative",
    Fault.OUTPUT_NEGATIVE: "output tokens are negative",
    Fault.PROMPT_TOO_LARGE: f"prompt tokens are above {LARGEST_TOKENS:,}",
    Fault.OUTPUT_TOO_LARGE: f"output tokens are above {LARGEST_TOKENS:,}",
    Fault.BLOCKS: "prefix block ids are not a list of whole numbers",
    Fault.PROMPT_NOT_LOGGED: "prompt length was not logged",
    Fault.OUTPUT_NOT_LOGGED: "output length was not logged",
}


def mark(faults: NDArray[np.uint8], where: NDArray[np.bool_], fault: Fault) -> None:
    """Give ``fault`` to the rows of ``where`` that have none yet; the first reason stays."""
    faults[where & (faults == Fault.NONE)] = fault


def mark_tokens(
    faults: NDArray[np.uint8],
    tokens: NDArray[np.float64],
    *,
    not_whole: Fault,
    negative: Fault,
    too_large: Fault,
) -> None:
    """Mark the token counts that are no count: NaN, a fraction, negative or absurdly large."""
    finite = np.isfinite(tokens)
    mark(faults, ~finite | (np.floor(tokens) != tokens), not_whole)
    mark(faults, finite & (tokens < 0), negative)
    mark(faults, finite & (tokens > LARGEST_TOKENS), too_large)
