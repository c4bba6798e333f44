"""What one point gave: not one number, but which limit failed for how many requests.

Knows rows of requests and their judgement by an SLO. An observation without rows still carries
its shares; a failed or infeasible point carries neither and still teaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.request_table import RequestTable
from tasks.domain.search.space import Point
from tasks.domain.search.step_model import Floats, OfferedLoad
from tasks.domain.slo import Slo
from tasks.domain.steps import TrialStatus

LIMITS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestRows:
    """Requests sorted by due time; arrays of shape (n,), seconds.

    ttft_s and e2e_s are NaN for a failed request, tpot_s for one of fewer than two tokens.
    duration_s: the seconds over which they were offered.
    """

    load: OfferedLoad
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    duration_s: float

    def latency(self, name: str) -> Floats:
        """Return the seconds of ``ttft``, ``tpot`` or ``e2e``."""
        return {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}[name]


def limits_of(slo: Slo) -> tuple[tuple[str, float], ...]:
    """Return (name, seconds) of the limits that apply."""
    values = zip(LIMITS, (slo.ttft_s, slo.tpot_s, slo.e2e_s), strict=True)
    return tuple((name, limit) for name, limit in values if limit is not None)


def breaks(name: str, seconds: Floats, limit_s: float) -> NDArray[np.bool_]:
    """Return which latencies break a limit: Slo.violations over arrays.

    NaN is a failure and breaks TTFT and E2E; it is no second token and keeps TPOT.
    """
    over: NDArray[np.bool_] = seconds > limit_s
    return over if name == "tpot" else over | np.isnan(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of all requests (0..1): inside the SLO, and outside each limit that applies."""

    attainment_frac: float
    broken: tuple[tuple[str, float], ...]

    def broken_frac(self, name: str) -> float:
        """Return the share outside one limit, 0 where the limit does not apply."""
        return dict(self.broken).get(name, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """What one point gave.

    gpu_s: seconds of the device that it cost. pressure: the largest of p99 latency / limit.
    waiting_mean, running_max: of the engine's own gauges. kv_peak_frac: most of the KV pool in
    use. diagnosis: ids of the rules that hold. sustainable_req_s: where it was searched for.
    note: why a point has no outcome. Everything not measured is None or empty.
    """

    point: Point
    status: TrialStatus
    gpu_s: float
    rows: RequestRows | None = None
    shares: Shares | None = None
    offered_req_s: float | None = None
    pressure: float | None = None
    waiting_mean: float | None = None
    running_max: float | None = None
    kv_peak_frac: float | None = None
    sustainable_req_s: float | None = None
    diagnosis: tuple[str, ...] = ()
    note: str = ""

    @property
    def complete(self) -> bool:
        """Tell whether the point was measured and may be believed."""
        return self.status is TrialStatus.COMPLETE and self.shares is not None


def judge_rows(rows: RequestRows, slo: Slo) -> Shares:
    """Return the shares of the requests under an SLO; without a request nothing is attained."""
    n = int(rows.ttft_s.size)
    failed = np.isnan(rows.ttft_s) | np.isnan(rows.e2e_s)
    broken = {name: breaks(name, rows.latency(name), limit) for name, limit in limits_of(slo)}
    good = ~failed
    for over in broken.values():
        good &= ~over
    shares = tuple((name, float(over.mean())) for name, over in broken.items())
    return Shares(attainment_frac=float(good.sum()) / n if n else 0.0, broken=shares)


def pressure_of(rows: RequestRows, slo: Slo) -> float | None:
    """Return the largest p99 latency / limit over the limits; None without limit or success."""
    ratios = [
        float(np.nanquantile(rows.latency(name), 0.99)) / limit
        for name, limit in limits_of(slo)
        if not np.isnan(rows.latency(name)).all()
    ]
    return max(ratios, default=None)


def observe_rows(point: Point, rows: RequestRows, *, slo: Slo, gpu_s: float) -> Observation:
    """Return the observation of a measured point from the requests themselves."""
    return Observation(
        point=point,
        status=TrialStatus.COMPLETE,
        gpu_s=gpu_s,
        rows=rows,
        shares=judge_rows(rows, slo),
        offered_req_s=rows.ttft_s.size / rows.duration_s,
        pressure=pressure_of(rows, slo),
    )


def rows_of_table(table: RequestTable) -> RequestRows:
    """Return the columns as arrays, None as NaN."""
    return RequestRows(
        load=OfferedLoad(
            due_s=np.array(table.due_s, dtype=np.float64),
            prompt_tokens=np.array(table.prompt_tokens),
            output_tokens=np.array(table.output_tokens),
        ),
        ttft_s=_seconds(table.ttft_s),
        tpot_s=_seconds(table.tpot_s),
        e2e_s=_seconds(table.e2e_s),
        duration_s=table.duration_s,
    )


def _seconds(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
