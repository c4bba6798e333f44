"""Time stamps of log lines on one axis: with and without a year, whole seconds, clocks set back.

vLLM's text log writes month, day and second in the host's local time, no year and no zone. What
that leaves open is assumed in one place, here, and said.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from tasks.adapters.trace_files.faults import Fault
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

    @property
    def ordinal(self) -> int:
        """Return a day number that grows within a year."""
        return self.month * 31 + self.day


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


def log_clock(stamps: list[LogStamp | None], lines: list[int], *, zone_given: bool) -> LogClock:
    """Return the stamps of requests in the file's order as columns.

    Without a year the first is taken as 2025 and a jump back of more than half a year begins the
    next one. Where neither stamp nor caller names a zone, a jump back of about an hour is read as
    the autumn change of local time; another one stays as it is and is named.
    """
    has_year = any(stamp is not None and stamp.year is not None for stamp in stamps)
    warnings: list[tuple[str, str]] = []
    years = None if has_year else _years(stamps, warnings)
    ns = np.full(len(stamps), NO_STAMP, dtype=np.int64)
    zoned = np.zeros(len(stamps), dtype=np.bool_)
    faults = np.zeros(len(stamps), dtype=np.uint8)
    for row, stamp in enumerate(stamps):
        year = None if stamp is None else stamp.year if years is None else years[row]
        moment = None if stamp is None or year is None else _nanoseconds(stamp, year)
        if moment is None or stamp is None:
            faults[row] = Fault.STAMP_MISSING if stamp is None else Fault.STAMP_UNREADABLE
        else:
            ns[row], zoned[row] = moment, stamp.offset_s is not None
    good = np.flatnonzero(faults == Fault.NONE)
    unfold = not zoned[good].any() and not (zone_given and has_year)
    _set_back(ns, good, np.array(lines, dtype=np.int64), unfold, warnings)
    whole = all(stamp is None or stamp.fraction_ns is None for stamp in stamps)
    return LogClock(
        stamps=Stamps(faults=faults, ns=ns, zoned=zoned),
        has_year=has_year,
        resolution_s=1.0 if whole else None,
        warnings=tuple(warnings),
    )


def _years(stamps: list[LogStamp | None], warnings: list[tuple[str, str]]) -> list[int]:
    turns, previous = [], None
    turn = 0
    for stamp in stamps:
        at = turn
        if stamp is not None:
            step = 0 if previous is None else stamp.ordinal - previous
            if step < -HALF_A_YEAR:
                turn = at = turn + 1
                previous = stamp.ordinal
            elif step > HALF_A_YEAR and turn > 0:
                at = turn - 1  # one late line of the old year after the first of the new
            else:
                previous = stamp.ordinal
        turns.append(at)
    leap = [
        turn
        for turn, stamp in zip(turns, stamps, strict=True)
        if stamp is not None and (stamp.month, stamp.day) == (2, 29)
    ]
    first = FIRST_YEAR + (-(FIRST_YEAR + leap[0]) % 4) if leap else FIRST_YEAR
    text = "the log's stamps have no year: the order of days is kept, the date stays unknown"
    if turn:
        text += f"; {turn} turn of the year was seen"
    warnings.append(("YEAR_NOT_LOGGED", text))
    return [first + at for at in turns]


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


def _nanoseconds(stamp: LogStamp, year: int) -> int | None:
    """Return Unix nanoseconds, those of the wall clock where no zone is known; None if no date."""
    try:
        day = datetime(year, stamp.month, stamp.day, tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((day - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1))
    seconds += stamp.second - (stamp.offset_s or 0)
    return seconds * 10**9 + (stamp.fraction_ns or 0)
