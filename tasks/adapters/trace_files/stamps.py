"""Time stamps in text or numbers turned into columns; zones are kept apart from wall clocks."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault, mark
from tasks.adapters.trace_files.layouts import StampKind
from tasks.adapters.trace_files.row_block import NO_STAMP, Stamps

ISO = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(\.\d{1,9})?(Z|[+-]\d\d(:?\d\d)?)?$"
)
NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)$"
ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def number_stamps(values: NDArray[np.float64], readable: NDArray[np.bool_]) -> Stamps:
    """Return numeric stamps; NaN and inf that were written as such are "not finite"."""
    faults = np.zeros(values.shape[0], dtype=np.uint8)
    mark(faults, ~readable, Fault.STAMP_UNREADABLE)
    mark(faults, ~np.isfinite(values), Fault.STAMP_NOT_FINITE)
    mark(faults, values < 0, Fault.STAMP_NEGATIVE)
    return Stamps(faults=faults, number=values)


def text_stamps(texts: pa.Array, kind: StampKind) -> Stamps:
    """Return the stamps of a column of trimmed text."""
    if kind == "iso":
        return _iso_stamps(texts)
    values, readable = numbers_from_text(texts)
    stamps = number_stamps(values, readable)
    stamps.faults[_mask(pc.equal(texts, ""))] = Fault.STAMP_MISSING
    return stamps


def numbers_from_text(texts: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return numbers (NaN where there is none) and which texts were a number at all."""
    try:
        values = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
        return values, np.ones(values.shape[0], dtype=np.bool_)
    except pa.ArrowInvalid:  # one text that is no number fails the whole column
        readable = _mask(pc.match_substring_regex(texts, NUMBER))
        values = np.full(len(texts), np.nan)
        if readable.any():
            numbers = pc.cast(texts.filter(pa.array(readable)), pa.float64())
            values[readable] = numbers.to_numpy(zero_copy_only=False)
        return values, readable


def _iso_stamps(texts: pa.Array) -> Stamps:
    count = len(texts)
    well_formed = _mask(pc.match_substring_regex(texts, ISO))
    zoned = well_formed & _mask(pc.match_substring_regex(texts, ZONE))
    # A date such as 2025-03-04 ends like a zone (-04) but is not well formed, hence the first mask.
    ns = np.full(count, NO_STAMP, dtype=np.int64)
    for where, zone in ((zoned, "UTC"), (well_formed & ~zoned, None)):
        if where.any():
            ns[where] = _nanoseconds(texts.filter(pa.array(where)), zone)
    faults = np.zeros(count, dtype=np.uint8)
    mark(faults, _mask(pc.equal(texts, "")), Fault.STAMP_MISSING)
    mark(faults, ns == NO_STAMP, Fault.STAMP_UNREADABLE)
    return Stamps(faults=faults, ns=ns, zoned=zoned)


def _nanoseconds(texts: pa.Array, zone: str | None) -> NDArray[np.int64]:
    kind = pa.timestamp("ns", tz=zone) if zone else pa.timestamp("ns")
    try:
        return np.asarray(pc.cast(pc.cast(texts, kind), pa.int64()).to_numpy())
    except pa.ArrowInvalid:  # one impossible date, such as 30 February, fails the column
        return np.array([_one(text, kind) for text in texts], dtype=np.int64)


def _one(text: pa.Scalar, kind: pa.DataType) -> int:
    try:
        return int(pc.cast(text, kind).value)
    except pa.ArrowInvalid:
        return int(NO_STAMP)


def _mask(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
