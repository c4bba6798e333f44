"""Our policy: look at which limit fails, forecast every point, ask the one that may gain most.

Cells outside, one after another; inside a cell a step model fitted to the measured requests
forecasts the rest (forecast.py). Without requests to fit it moves by the failing limit.
"""

from dataclasses import dataclass, field

from tasks.domain.parameters import ParameterValues
from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.forecast import Forecaster, Outlook
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import Forecast, PriorUse, Proposal, Stop
from tasks.domain.search.space import SEQS, TOKENS, Point, SearchSpace
from tasks.domain.search.start_points import Suggested
from tasks.domain.search.steering import failing_limits, move_from, without_kv_pressure

MODEL_SOURCE = "step model: fitted to the requests of the points told so far"
CHECKED = 2  # points that must have been told before a forecast may end a cell


@dataclass(slots=True, kw_only=True)
class OurPolicy:
    """See the module. ``starts`` are the points that catalogue, guide and inflection suggest."""

    ledger: Ledger
    seed: int
    starts: tuple[Suggested, ...] = ()
    calibrations: dict[ParameterValues, Calibrations] = field(default_factory=dict)

    def tell(self, observation: Observation) -> None:
        """Take what a point gave."""
        self.ledger.tell(observation)

    def ask(self) -> Proposal | Stop:
        """Return the point with the largest expected gain of the first cell that may gain."""
        ended = self.ledger.stop()
        if ended is not None:
            return ended
        first = self.ledger.first()
        if first is not None:
            return first
        why: list[str] = []
        for cell in self.ledger.space.cells:
            answer = self._ask_cell(cell)
            if isinstance(answer, Proposal):
                return answer
            why.append(answer)
        reason = "; ".join(why)
        return Stop(code="NO_GAIN", reason=reason, priors=self.ledger.exclusions())

    def _ask_cell(self, cell: ParameterValues) -> Proposal | str:
        """Return the cell's next proposal, or why it has none."""
        candidates = tuple(p for p in self.ledger.open_points() if p.cell == cell)
        if not candidates:
            return f"cell {dict(cell.items)} has no point left"
        told = tuple(o for o in self.ledger.observations if o.point.cell == cell)
        if not told:
            return self._enter_cell(candidates)
        fitted = tuple(o for o in told if o.complete and o.rows is not None)
        if fitted:
            return self._by_forecast(cell, fitted, candidates)
        return self._by_steering(told, candidates)

    def _enter_cell(self, candidates: tuple[Point, ...]) -> Proposal:
        best = self.ledger.objective.best(self.ledger.observations)
        anchor = self.ledger.space.reference if best is None else best.point
        point = nearest_levels(self.ledger.space, anchor, candidates)
        prior = PriorUse(
            source="best point of the cells measured so far",
            sentence=f"{anchor.text} is carried over to the next cell",
        )
        return Proposal(point=point, reason="first point of a cell", priors=(prior,))

    def _by_forecast(
        self, cell: ParameterValues, told: tuple[Observation, ...], candidates: tuple[Point, ...]
    ) -> Proposal | str:
        objective = self.ledger.objective
        memory = self.calibrations.setdefault(
            cell, Calibrations(kv_tokens=self.ledger.space.kv_tokens)
        )
        forecaster = Forecaster(
            observations=told, objective=objective, calibrations=memory, seed=self.seed
        )
        best = objective.top_worth(self.ledger.observations)
        allowed, exclusions = without_kv_pressure(told, candidates)
        if not allowed:
            return f"cell {dict(cell.items)}: {exclusions[0].sentence}"
        outlooks = forecaster.outlooks(allowed)
        chosen = self._chosen(outlooks, best)
        reach = max(outlook.upper() for outlook in outlooks)
        if len(told) >= CHECKED and reach < best * (1 + objective.min_gain_frac):
            return (
                f"cell {dict(cell.items)}: no open point is forecast above {reach:.4g} "
                f"(97.5 %), which does not beat {best:.4g} by {100 * objective.min_gain_frac:g} %"
            )
        return self._proposal(chosen, told, best, exclusions)

    def _chosen(self, outlooks: tuple[Outlook, ...], best: float) -> Outlook:
        """Return the largest expected gain, of equal ones a start point or the fewest overrides."""
        suggested = {point for point, _ in self.starts}
        return max(
            outlooks,
            key=lambda o: (
                round(o.gain_over(best), 9),
                round(o.mean, 9),
                o.point in suggested,
                -o.point.overrides,
            ),
        )

    def _proposal(
        self,
        chosen: Outlook,
        told: tuple[Observation, ...],
        best: float,
        exclusions: tuple[PriorUse, ...],
    ) -> Proposal:
        top = max(told, key=lambda o: self.ledger.objective.worth(o) or 0.0)
        move = move_from(top)
        priors = [
            PriorUse(
                source=MODEL_SOURCE,
                sentence=f"{len(told)} points fitted; weak prior from the first one's latencies",
            ),
            *(use for point, use in self.starts if point == chosen.point),
            *(() if move is None else (move.prior,)),
            *exclusions,
            *self.ledger.exclusions(),
        ]
        return Proposal(
            point=chosen.point,
            reason=f"at {top.point.text} {failing_limits(top)}; {chosen.point.text} is forecast "
            f"at {chosen.mean:.4g} against {best:.4g}",
            priors=tuple(priors),
            forecast=Forecast(
                mean=chosen.mean,
                sd=float(chosen.worths.std()),
                expected_gain=chosen.gain_over(best),
            ),
        )

    def _by_steering(
        self, told: tuple[Observation, ...], candidates: tuple[Point, ...]
    ) -> Proposal:
        """Return a start point that is left, else the nearest point in the failing limit's way."""
        top = max(told, key=lambda o: self.ledger.objective.worth(o) or 0.0)
        move = move_from(top)
        ahead = candidates
        if move is not None:
            ahead = tuple(p for p in candidates if _agrees(p, top.point, move.seqs, move.tokens))
        for point, use in self.starts:
            if point in (ahead or candidates):
                return Proposal(point=point, reason="a suggested start", priors=(use,))
        point = nearest_levels(self.ledger.space, top.point, ahead or candidates)
        return Proposal(
            point=point,
            reason=f"at {top.point.text} {failing_limits(top)}",
            priors=() if move is None else (move.prior,),
        )


def nearest_levels(space: SearchSpace, anchor: Point, candidates: tuple[Point, ...]) -> Point:
    """Return the candidate fewest knob levels away from the anchor, the space's first of equals."""

    def distance(point: Point) -> int:
        return sum(
            abs(space.levels(name).index(a) - space.levels(name).index(b))
            for name, a, b in (
                (SEQS, point.max_num_seqs, anchor.max_num_seqs),
                (TOKENS, point.max_num_batched_tokens, anchor.max_num_batched_tokens),
            )
        )

    return min(candidates, key=distance)


def _agrees(point: Point, anchor: Point, seqs: int, tokens: int) -> bool:
    """Tell whether a point lies the asked way of the anchor and no other way."""
    moved = (
        (point.max_num_seqs - anchor.max_num_seqs, seqs),
        (point.max_num_batched_tokens - anchor.max_num_batched_tokens, tokens),
    )
    asked = [delta * way > 0 for delta, way in moved if way]
    kept = all(delta == 0 for delta, way in moved if not way)
    return kept and any(asked) and all(delta * way >= 0 for delta, way in moved)
