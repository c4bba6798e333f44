"""Seconds on one axis from whatever the file calls time: units, zones, folds and the epoch."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault, mark
from tasks.adapters.trace_files.options import TimeUnit, TraceOptions
from tasks.adapters.trace_files.row_block import Stamps
from tasks.domain.errors import TraceError

Warnings = list[tuple[str, str]]
UNIT_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# Unix time from 2008 to 2100 in seconds; a relative stamp reaches it only after 38 years.
EPOCH_S = (1.2e9, 4.1e9)
SLOWEST_BELIEVABLE_REQ_S = 0.02
FOLD_JUMP_NS = -1_800 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Stamps in seconds on one axis; ``zero_unix_s`` is that axis' zero in Unix time, if known."""

    seconds: NDArray[np.float64]
    zero_unix_s: float | None
    warnings: tuple[tuple[str, str], ...]


def read_clock(
    stamps: Stamps, faults: NDArray[np.uint8], *, unit: TimeUnit, options: TraceOptions
) -> Clock:
    """Return the stamps as seconds; rows that mix naive into zoned time become faults.

    Raises:
        TraceError: NONEXISTENT_LOCAL_TIME for a wall clock that the zone skipped, or for a
            zone that is not known.
    """
    if stamps.ns is not None and stamps.zoned is not None:
        return _iso_clock(stamps.ns, stamps.zoned, faults, options)
    if stamps.number is None:
        raise ValueError("stamps hold neither numbers nor nanoseconds")
    return _number_clock(stamps.number, faults, unit)


def utc_text(unix_s: float) -> str:
    """Return Unix seconds as ISO 8601 in UTC with microseconds."""
    moment = datetime.fromtimestamp(unix_s, tz=UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _number_clock(values: NDArray[np.float64], faults: NDArray[np.uint8], unit: TimeUnit) -> Clock:
    good = values[faults == Fault.NONE]
    if good.size == 0:
        return Clock(seconds=values, zero_unix_s=None, warnings=())
    named, how = (unit, "as the format or the caller says") if unit != "auto" else _guess(good)
    scale, first = UNIT_S[named], float(good.min())
    epoch = EPOCH_S[0] <= first * scale <= EPOCH_S[1]
    said: Warnings = [("TIME_UNIT", f"time stamps read in {named} ({how})")]
    if first != 0.0:
        since = "the Unix epoch" if epoch else "the file's own zero"
        said.append(
            ("ORIGIN_SUBTRACTED", f"first stamp {first:.15g} {named} after {since} is now 0")
        )
    # Subtract before scaling: Unix nanoseconds do not keep their last digits in float64.
    return Clock(
        seconds=(values - first) * scale,
        zero_unix_s=first * scale if epoch else None,
        warnings=tuple(said),
    )


def _guess(good: NDArray[np.float64]) -> tuple[TimeUnit, str]:
    middle = float(np.median(good))
    units: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
    for unit in units:
        if EPOCH_S[0] <= middle * UNIT_S[unit] <= EPOCH_S[1]:
            return unit, "they lie between 2008 and 2100 as Unix time"
    span = float(good.max() - good.min())
    if good.size < 20 or not np.all(good == np.floor(good)):
        return "s", "fractional or too few to tell; seconds are the default"
    for unit in units:
        if good.size > SLOWEST_BELIEVABLE_REQ_S * span * UNIT_S[unit]:
            return unit, f"whole numbers over a span of {span:g}"
    return "s", "no unit gives a believable rate; seconds are the default"


def _iso_clock(
    ns: NDArray[np.int64],
    zoned: NDArray[np.bool_],
    faults: NDArray[np.uint8],
    options: TraceOptions,
) -> Clock:
    good = faults == Fault.NONE
    naive = good & ~zoned
    said: Warnings = []
    if naive.any() and options.timezone is None and (good & zoned).any():
        mark(faults, naive, Fault.STAMP_WITHOUT_ZONE)
        said.append(
            ("MIXED_ZONES", "some stamps have no zone: refused; set timezone to accept them")
        )
    elif naive.any() and options.timezone is None:
        said.append(("ASSUMED_UTC", "time stamps have no zone and were read as UTC"))
    elif naive.any() and options.timezone is not None:
        ns = ns.copy()
        ns[naive] = _to_utc(ns[naive], options.timezone, said)
        text = f"time stamps without zone were read in {options.timezone}"
        said.append(("ZONE_GIVEN", text))
    good = faults == Fault.NONE
    if not good.any():
        return Clock(seconds=np.zeros(ns.shape[0]), zero_unix_s=None, warnings=tuple(said))
    first = int(ns[good].min())
    seconds = np.zeros(ns.shape[0], dtype=np.float64)
    seconds[good] = (ns[good] - first) / 1e9
    return Clock(seconds=seconds, zero_unix_s=first / 1e9, warnings=tuple(said))


def _to_utc(wall: NDArray[np.int64], zone: str, said: Warnings) -> NDArray[np.int64]:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise TraceError(
            f"timezone={zone!r} is not known; needed an IANA name such as Europe/Berlin; "
            f"correct it or leave it out for UTC"
        ) from error
    clock = pd.DatetimeIndex(wall.view("datetime64[ns]"))
    first_pass = clock.tz_localize(zone, ambiguous=np.ones(len(clock), bool), nonexistent="NaT")
    skipped = np.asarray(first_pass.isna())
    if skipped.any():
        raise TraceError(
            f"local time {clock[skipped][0]} does not exist in {zone} (the clock went forward); "
            f"needed stamps of that zone; correct timezone",
            code="NONEXISTENT_LOCAL_TIME",
        )
    second_pass = clock.tz_localize(zone, ambiguous=np.zeros(len(clock), bool))
    first_ns = first_pass.as_unit("ns").asi8
    second_ns = second_pass.as_unit("ns").asi8
    if not (first_ns != second_ns).any():
        return np.asarray(first_ns)
    late = _after_the_fold(wall, first_ns != second_ns, said)
    return np.where(late, second_ns, first_ns)


def _after_the_fold(
    wall: NDArray[np.int64], twice: NDArray[np.bool_], said: Warnings
) -> NDArray[np.bool_]:
    """Return which rows of the repeated hour are its second run: those after the jump back."""
    late = np.zeros(wall.shape[0], dtype=np.bool_)
    backward = np.flatnonzero(np.diff(wall) < FOLD_JUMP_NS) + 1
    jumps = [int(row) for row in backward if twice[row]]
    if jumps:
        late[jumps[0] :] = True
        text = "the repeated hour was split where the clock jumped back in the file's order"
        said.append(("DST_FOLD_INFERRED", text))
    else:
        text = "stamps of a repeated hour show no jump back; all read as its first run"
        said.append(("DST_FOLD_ASSUMED", text))
    return late
