"""Which of two arms is faster at each concurrency, and at the traffic's own.

One number an arm misleads: a quantized checkpoint may win alone and lose under load. Knows
measured points and what lies between them; refuses to say anything beyond them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tasks.domain.errors import InvalidParameterError, MeasurementInvalidError

TIE = "tie"
TIE_BAND_FRAC = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputCurve:
    """Output tokens per second of one arm by concurrency, as (concurrency, tok/s)."""

    arm: str
    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, arm: str, tok_s: Mapping[int, float]) -> "ThroughputCurve":
        """Return the curve with its points sorted by concurrency."""
        return cls(arm=arm, points=tuple(sorted(tok_s.items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveComparison:
    """Who is faster where both were measured.

    faster: (concurrency, arm or "tie", (faster - slower) / faster).
    crossover_between: the last concurrency that one arm won and the next that the other won.
    """

    first: ThroughputCurve
    second: ThroughputCurve
    tie_band_frac: float
    faster: tuple[tuple[int, str, float], ...]
    crossover_between: tuple[int, int] | None

    def ahead_between(self, low: float, high: float) -> str:
        """Return the arm that is ahead over a whole range of concurrency, or "tie".

        Throughput is interpolated linearly in log concurrency at both ends and compared there
        and at every measured point between them; arms that each lead somewhere are a tie.

        Raises:
            MeasurementInvalidError: EXTRAPOLATION, for a range beyond the measured points.
        """
        first, last = self.faster[0][0], self.faster[-1][0]
        if not first <= low <= high <= last:
            raise MeasurementInvalidError(
                f"concurrency {low:g}-{high:g} is not inside the measured {first}-{last} of "
                f"{self.first.arm} and {self.second.arm}; measure there, nothing is extrapolated",
                code="EXTRAPOLATION",
            )
        at = [low, *(c for c, _, _ in self.faster if low < c < high), high]
        leaders = {
            _leader(
                (self.first.arm, _interpolated(self.first, c)),
                (self.second.arm, _interpolated(self.second, c)),
                self.tie_band_frac,
            )[0]
            for c in at
        } - {TIE}
        return leaders.pop() if len(leaders) == 1 else TIE


def faster_by_concurrency(
    first: ThroughputCurve, second: ThroughputCurve, *, tie_band_frac: float = TIE_BAND_FRAC
) -> CurveComparison:
    """Return who is faster at each concurrency that both arms were measured at.

    A difference of less than ``tie_band_frac`` of the faster one is a tie.

    Raises:
        InvalidParameterError: where the curves share no concurrency.
    """
    one, two = dict(first.points), dict(second.points)
    shared = sorted(one.keys() & two.keys())
    if not shared:
        raise InvalidParameterError(
            f"{first.arm} was measured at {sorted(one)}, {second.arm} at {sorted(two)}; needed at "
            "least one concurrency in both"
        )
    faster = []
    for c in shared:
        arm, lead = _leader((first.arm, one[c]), (second.arm, two[c]), tie_band_frac)
        faster.append((c, arm, lead))
    return CurveComparison(
        first=first,
        second=second,
        tie_band_frac=tie_band_frac,
        faster=tuple(faster),
        crossover_between=_crossover(faster),
    )


def _leader(one: tuple[str, float], two: tuple[str, float], band: float) -> tuple[str, float]:
    ahead, behind = (one, two) if one[1] >= two[1] else (two, one)
    lead = 0.0 if ahead[1] <= 0 else (ahead[1] - behind[1]) / ahead[1]
    return (TIE if lead < band else ahead[0]), lead


def _crossover(faster: list[tuple[int, str, float]]) -> tuple[int, int] | None:
    won = [(c, arm) for c, arm, _ in faster if arm != TIE]
    for (before, arm), (after, other) in pairwise(won):
        if arm != other:
            return before, after
    return None


def _interpolated(curve: ThroughputCurve, concurrency: float) -> float:
    points = curve.points
    for (c0, y0), (c1, y1) in pairwise(points):
        if c0 <= concurrency <= c1:
            share = math.log(concurrency / c0) / math.log(c1 / c0)
            return y0 + share * (y1 - y0)
    return dict(points)[int(concurrency)]
