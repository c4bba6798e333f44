"""What unmeasured points are expected to be worth, and how unsure that is.

Each draw of the fitted step model predicts every request's latencies; what it gets wrong at
measured points is carried to points that it predicts to behave alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import (
    LIMITS,
    Observation,
    RequestRows,
    breaks,
    limits_of,
)
from tasks.domain.search.rate_forecast import rate_logs
from tasks.domain.search.space import Point
from tasks.domain.search.step_model import Floats, Simulated

FIRST_ERROR_LOG = 0.2  # what the fitted model is taken to be off before any point is compared
NOISE_LOG = 0.03  # repeats of one point differ by about this much
ALIKE_LOG = 0.35  # latencies of two points that differ by 40 % share 60 % of the model's error
DRAWS_A_MEMBER = 24
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_LIMIT_SHARE = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """Draws of a point's worth, shape (draws,), with common random numbers over all points."""

    point: Point
    worths: Floats

    @property
    def mean(self) -> float:
        """Return the expected worth."""
        return float(self.worths.mean())

    def gain_over(self, best: float) -> float:
        """Return the expected improvement over the best worth seen."""
        return float(np.maximum(self.worths - best, 0.0).mean())

    def upper(self, share: float = 0.975) -> float:
        """Return the worth that this share of the draws stays below."""
        return float(np.quantile(self.worths, share))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecaster:
    """Forecasts of one cell from its observations with rows, at least one."""

    observations: tuple[Observation, ...]
    objective: Objective
    calibrations: Calibrations
    seed: int

    @property
    def rows(self) -> RequestRows:
        """Return the first observation's rows: the load that every point meets."""
        rows = self.observations[0].rows
        assert rows is not None
        return rows

    def outlooks(self, candidates: Sequence[Point]) -> tuple[Outlook, ...]:
        """Return the outlook of every candidate, in order."""
        if self.objective.searches_rate:
            return self._rate_outlooks(candidates)
        told = [self._seen(o.point) for o in self.observations]
        seen = [self._seen(point) for point in candidates]
        random = np.random.default_rng(self.seed)
        normals = random.standard_normal((len(told[0]), len(LIMITS), DRAWS_A_MEMBER))
        worths = [
            self._member_worths([s[i] for s in told], [s[i] for s in seen], normals[i])
            for i in range(len(told[0]))
        ]
        return tuple(
            Outlook(point=point, worths=np.concatenate([member[i] for member in worths]))
            for i, point in enumerate(candidates)
        )

    def _rate_outlooks(self, candidates: Sequence[Point]) -> tuple[Outlook, ...]:
        """Return outlooks of the sustainable rate, its error carried like a latency's."""
        told = tuple(o for o in self.observations if o.sustainable_req_s)
        points = [o.point for o in told]
        logs = rate_logs(
            self.observations,
            [*points, *candidates],
            slo=self.objective.slo,
            rows=self.rows,
            calibrations=self.calibrations,
        )
        seen = [self._seen(point)[0] for point in (*points, *candidates)]
        known, asked = seen[: len(told)], seen[len(told) :]
        measured = np.array([o.sustainable_req_s for o in told], dtype=np.float64)
        errors = np.log(measured) - logs[: len(told)]
        alike = (_alikeness(known, known), _alikeness(asked, known)) if told else None
        mean, sd = np.zeros(len(asked)), np.full(len(asked), FIRST_ERROR_LOG)
        if alike is not None:
            mean, sd = _carried(errors, *alike, _spread(errors))
        normals = np.random.default_rng(self.seed).standard_normal(5 * DRAWS_A_MEMBER)
        rates = np.exp(logs[len(told) :, None] + mean[:, None] + sd[:, None] * normals[None, :])
        return tuple(Outlook(point=point, worths=rates[i]) for i, point in enumerate(candidates))

    def _member_worths(
        self, told: Sequence[Simulated], seen: Sequence[Simulated], normals: Floats
    ) -> list[Floats]:
        """Return one draw of worths, shape (DRAWS_A_MEMBER,), for each candidate."""
        alike_told, alike = _alikeness(told, told), _alikeness(seen, told)
        shifts: dict[str, Floats] = {}
        for name, _ in limits_of(self.objective.slo):
            pairs = zip(self.observations, told, strict=True)
            errors = np.array([self._error(o, s, name) for o, s in pairs])
            spread = _spread(errors)
            mean, sd = _carried(errors, alike_told, alike, spread)
            shifts[name] = mean[:, None] + sd[:, None] * normals[LIMITS.index(name)][None, :]
        return [
            self._worths(s, {name: shift[i] for name, shift in shifts.items()})
            for i, s in enumerate(seen)
        ]

    def _seen(self, point: Point) -> tuple[Simulated, ...]:
        return self.calibrations.simulated(self.observations, self.rows.load, point)

    def _error(self, told: Observation, seen: Simulated, name: str) -> float:
        """Return log(measured / simulated) at the quantile where the measured limit lies."""
        if told.rows is None:
            return 0.0
        limit = dict(limits_of(self.objective.slo))[name]
        measured = told.rows.latency(name)
        inside = 1.0 - float(breaks(name, measured, limit).mean())
        share = float(np.clip(inside, *_LIMIT_SHARE))
        both = (np.nanquantile(measured, share), np.nanquantile(_latency(seen, name), share))
        ratio = float(both[0] / both[1])
        return float(np.log(ratio)) if np.isfinite(ratio) and ratio > 0 else 0.0

    def _worths(self, seen: Simulated, shifts: dict[str, Floats]) -> Floats:
        good = np.ones((DRAWS_A_MEMBER, seen.ttft_s.size), dtype=bool)
        pressure = np.zeros(DRAWS_A_MEMBER)
        for name, limit in limits_of(self.objective.slo):
            factor = np.exp(shifts[name])
            seconds = _latency(seen, name)
            good &= ~breaks(name, seconds[None, :] * factor[:, None], limit)
            if np.isfinite(seconds).any():
                pressure = np.maximum(pressure, factor * np.nanquantile(seconds, 0.99) / limit)
        pool = self.calibrations.kv_tokens
        kv_frac = 1.0 if pool is None else min(1.0, seen.peak_kv_tokens / pool)
        rows = self.rows
        return self.objective.worths(
            good.mean(axis=1),
            offered_req_s=rows.ttft_s.size / rows.duration_s,
            pressure=pressure,
            kv_frac=np.full(DRAWS_A_MEMBER, kv_frac),
        )


def _spread(errors: Floats) -> float:
    """Return the model's spread (of a logarithm) at a point unlike any told one.

    Root mean square of its errors at told points, FIRST_ERROR_LOG counted as one more of them.
    """
    return float(np.sqrt((FIRST_ERROR_LOG**2 + (errors**2).sum()) / (1 + errors.size)))


def _latency(seen: Simulated, name: str) -> Floats:
    return {"ttft": seen.ttft_s, "tpot": seen.tpot_s, "e2e": seen.e2e_s}[name]


def _alikeness(first: Sequence[Simulated], second: Sequence[Simulated]) -> Floats:
    """Return exp(-(d / ALIKE_LOG)^2 / 2), d: root mean square of log quantile ratios."""
    left, right = (np.stack([_features(s) for s in side]) for side in (first, second))
    squared = ((left[:, None, :] - right[None, :, :]) ** 2).mean(axis=2)
    likeness: Floats = np.exp(-squared / (2 * ALIKE_LOG**2))
    return likeness


def _features(seen: Simulated) -> Floats:
    parts = [
        np.log(np.maximum(np.nanquantile(seconds, _QUANTILES), 1e-9))
        for seconds in (seen.ttft_s, seen.tpot_s)
    ]
    features: Floats = np.nan_to_num(np.concatenate(parts), nan=0.0)
    return features


def _carried(errors: Floats, alike_told: Floats, alike: Floats, sd: float) -> tuple[Floats, Floats]:
    """Return mean and sd of the error at candidates: Gaussian-process regression of zero mean."""
    known = sd**2 * alike_told + NOISE_LOG**2 * np.eye(errors.size)
    weights = np.linalg.solve(known, (sd**2 * alike).T)
    mean: Floats = weights.T @ errors
    left = sd**2 * (1.0 - (alike * weights.T).sum(axis=1))
    spread: Floats = np.sqrt(np.maximum(left, 0.0))
    return mean, spread
