"""Time stamps of log lines on one axis: with and without a year, whole seconds, clocks set back.

vLLM's text log writes month, day and second in the host's local time, no year and no zone. What
that leaves open is assumed in one place, here, and said.
"""

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault, mark
from tasks.adapters.trace_files.row_block import NO_STAMP, Stamps

_ISO = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
_AT_START = re.compile(rf"^\s*\[?{_ISO}\]?(?=\s|$)")
_VLLM = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?= )"
)
_SYSLOG = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s")
_COMMON = re.compile(r" \[(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})\]")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
PREFIX_CHARS = 200

HALF_A_YEAR = 6 * 31
FIRST_YEAR = 2025  # stands for a year that is not logged; 29 February moves it to a leap year
NO_OFFSET = -(2**31)
DAY_NS = 86_400 * 10**9
FOLD_S = 3_600
LEAST_FOLD_S = 1_800
BELIEVABLE_BACK_S = 2.0  # lines of several processes interleave by less


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStamp:
    """A wall clock as written; year None where the line has none, offset_s None without a zone.

    fraction_ns: None where the stamp stops at whole seconds.
    """

    year: int | None
    month: int
    day: int
    second: int
    fraction_ns: int | None
    offset_s: int | None


class StampColumns:
    """Stamps in the file's order, 16 bytes each: a busy server's log holds millions.

    day: year x 10,000 + month x 100 + day, year 0 where it is not logged, 0 for no stamp at all.
    clock_ns: nanoseconds of that day. offset_s: the zone's, NO_OFFSET without one.
    """

    __slots__ = ("clock_ns", "day", "offset_s", "whole")

    def __init__(self, stamps: Iterable[LogStamp | None] = ()) -> None:
        self.day = array("i")
        self.clock_ns = array("q")
        self.offset_s = array("i")
        self.whole = True
        for stamp in stamps:
            self.append(stamp)

    def append(self, stamp: LogStamp | None) -> None:
        """Add the stamp of one more row."""
        if stamp is None:
            self.day.append(0)
            self.clock_ns.append(0)
            self.offset_s.append(NO_OFFSET)
            return
        self.day.append((stamp.year or 0) * 10_000 + stamp.month * 100 + stamp.day)
        self.clock_ns.append(stamp.second * 10**9 + (stamp.fraction_ns or 0))
        self.offset_s.append(NO_OFFSET if stamp.offset_s is None else stamp.offset_s)
        self.whole &= stamp.fraction_ns is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogClock:
    """Stamps as columns, the finest step they can tell in seconds, and what was assumed."""

    stamps: Stamps
    has_year: bool
    resolution_s: float | None
    warnings: tuple[tuple[str, str], ...]


def stamp_of(line: str, own: str | None) -> LogStamp | None:
    """Return a line's stamp: ``own`` is that of a JSON line; None where there is none.

    A stamp in front of the line (docker or kubectl logs --timestamps) goes before vLLM's own.
    """
    if own is not None:
        found = _AT_START.match(own)
        return None if found is None else _iso(found)
    head = line[:PREFIX_CHARS]
    if (found := _AT_START.match(head)) is not None:
        return _iso(found)
    if (found := _VLLM.search(head)) is not None:
        month, day, hour, minute, second, fraction = found.groups()
        return _stamp(None, int(month), day, (hour, minute, second), fraction, None)
    if (found := _SYSLOG.match(head)) is not None and found[1] in _MONTHS:
        name, day, hour, minute, second, fraction = found.groups()
        return _stamp(None, _month(name), day, (hour, minute, second), fraction, None)
    if (found := _COMMON.search(head)) is not None and found[2] in _MONTHS:
        day, name, year, hour, minute, second, zone = found.groups()
        return _stamp(int(year), _month(name), day, (hour, minute, second), None, zone)
    return None


def log_clock(stamps: StampColumns, lines: NDArray[np.int64], *, zone_given: bool) -> LogClock:
    """Return the stamps of requests in the file's order as columns.

    Without a year the first is taken as 2025 and a jump back of more than half a year begins the
    next one. Where neither stamp nor caller names a zone, a jump back of about an hour is read as
    the autumn change of local time; another one stays as it is and is named.
    """
    day = np.array(stamps.day, dtype=np.int64)
    offset_s = np.array(stamps.offset_s, dtype=np.int64)
    present = day > 0
    has_year = bool((day >= 10_000).any())
    warnings: list[tuple[str, str]] = []
    if not has_year:
        day[present] += 10_000 * _years(day[present], warnings, zone_given=zone_given)
    unix_day, real = _unix_days(day)
    faults = np.zeros(day.size, dtype=np.uint8)
    mark(faults, ~present, Fault.STAMP_MISSING)
    mark(faults, ~real, Fault.STAMP_UNREADABLE)
    zoned = offset_s != NO_OFFSET
    ns = unix_day * DAY_NS + np.array(stamps.clock_ns, dtype=np.int64)
    ns -= np.where(zoned, offset_s, 0) * 10**9
    ns[faults != Fault.NONE] = NO_STAMP
    good = np.flatnonzero(faults == Fault.NONE)
    unfold = not zoned[good].any() and not (zone_given and has_year)
    _set_back(ns, good, lines, unfold, warnings)
    return LogClock(
        stamps=Stamps(faults=faults, ns=ns, zoned=zoned),
        has_year=has_year,
        resolution_s=1.0 if stamps.whole else None,
        warnings=tuple(warnings),
    )


def _unix_days(day: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return days since 1970 of the dates, and which of them are dates with a year at all."""
    codes, place = np.unique(day, return_inverse=True)
    numbers = np.zeros(codes.size, dtype=np.int64)
    real = np.zeros(codes.size, dtype=np.bool_)
    for i, code in enumerate(codes.tolist()):
        try:
            date = datetime(code // 10_000, code // 100 % 100, code % 100, tzinfo=UTC)
        except ValueError:
            continue
        numbers[i], real[i] = (date - datetime(1970, 1, 1, tzinfo=UTC)).days, True
    return numbers[place], real[place]


def _years(
    day: NDArray[np.int64], warnings: list[tuple[str, str]], *, zone_given: bool
) -> NDArray[np.int64]:
    turns = _turns(day)
    leap = turns[day == 229]
    first = FIRST_YEAR + (-(FIRST_YEAR + int(leap[0])) % 4) if leap.size else FIRST_YEAR
    text = "the log's stamps have no year: the order of days is kept, the date stays unknown"
    if turns.any():
        text += f"; {int(turns.max())} turn of the year was seen"
    if zone_given:
        text += "; without it the time zone given cannot be applied"
    warnings.append(("YEAR_NOT_LOGGED", text))
    return first + turns


def _turns(day: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many turns of the year lie before each stamp, in the file's order."""
    ordinals = day // 100 * 31 + day % 100
    turns = np.zeros(day.size, dtype=np.int64)
    if not (np.abs(np.diff(ordinals)) > HALF_A_YEAR).any():
        return turns
    turn, previous = 0, int(ordinals[0])
    for row, ordinal in enumerate(ordinals.tolist()):
        step = ordinal - previous
        if step > HALF_A_YEAR and turn > 0:
            turns[row] = turn - 1  # one late line of the old year after the first of the new
            continue
        turn += step < -HALF_A_YEAR
        turns[row], previous = turn, ordinal
    return turns


def _set_back(
    ns: NDArray[np.int64],
    good: NDArray[np.int64],
    lines: NDArray[np.int64],
    unfold: bool,
    warnings: list[tuple[str, str]],
) -> None:
    """Undo an autumn change in place and name every other jump back."""
    steps = np.diff(ns[good]) / 1e9
    back = np.flatnonzero(steps < -BELIEVABLE_BACK_S)
    folds = [at for at in back.tolist() if unfold and -FOLD_S <= steps[at] <= -LEAST_FOLD_S]
    for at in folds[:1]:  # local time repeats one hour a year
        ns[good[at + 1 :]] += FOLD_S * 10**9
        text = (
            f"the clock jumped back {-steps[at]:.0f} s at line {lines[good[at + 1]]}; read as the "
            "end of summer time, what follows is an hour later"
        )
        warnings.append(("DST_FOLD_INFERRED", text))
    others = [at for at in back.tolist() if at not in folds[:1]]
    if others:
        worst = min(others, key=lambda at: float(steps[at]))
        text = (
            f"the clock went back {len(others)} times, at most {-steps[worst]:.0f} s at line "
            f"{lines[good[worst + 1]]}; rows were sorted by their stamps, so the rate there may "
            "be too high"
        )
        warnings.append(("CLOCK_WENT_BACK", text))


def _iso(found: re.Match[str]) -> LogStamp:
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    return _stamp(int(year), int(month), day, (hour, minute, second), fraction, zone)


def _stamp(
    year: int | None,
    month: int,
    day: str,
    clock: tuple[str, str, str],
    fraction: str | None,
    zone: str | None,
) -> LogStamp:
    hour, minute, second = (int(part) for part in clock)
    return LogStamp(
        year=year,
        month=month,
        day=int(day),
        second=3_600 * hour + 60 * minute + second,
        fraction_ns=None if fraction is None else int(fraction.ljust(9, "0")),
        offset_s=None if zone is None else _offset_s(zone),
    )


def _offset_s(zone: str) -> int:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = 3_600 * int(digits[:2]) + 60 * int(digits[2:])
    return -seconds if zone[0] == "-" else seconds


def _month(name: str) -> int:
    return _MONTHS.index(name) + 1
