"""Our policy: look at which limit fails, forecast every point, ask the one that may gain most.

Cells outside, one after another; inside a cell a step model fitted to the measured requests
forecasts the rest (forecast.py). Without requests to fit it moves by the failing limit.
"""

from dataclasses import dataclass, field, replace

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
# Expected gains this close are not told apart: they are means of about a hundred draws each.
ALIKE_FRAC = 0.1


@dataclass(slots=True, kw_only=True)
class OurPolicy:
    """See the module. ``starts`` are the points that catalogue, guide and inflection suggest.

    They are no points of their own right: each is forecast, and decides where forecasts are alike.
    """

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
        top = max(told, key=lambda o: objective.worth(o) or 0.0)
        move = move_from(top)
        chosen = most_promising(
            outlooks,
            best=best,
            pointed=frozenset(p for p in allowed if move and move.leads(top.point, p)),
            starts=frozenset(point for point, _ in self.starts),
        )
        reach = max(outlook.upper() for outlook in outlooks)
        if len(told) >= CHECKED and reach < best * (1 + objective.min_gain_frac):
            return (
                f"cell {dict(cell.items)}: no open point is forecast above {reach:.4g} "
                f"(97.5 %), which does not beat {best:.4g} by {100 * objective.min_gain_frac:g} %"
            )
        priors = (
            PriorUse(
                source=MODEL_SOURCE,
                sentence=f"{len(told)} points fitted; weak prior from the first one's latencies",
            ),
            *self._starts_in(outlooks, chosen.point),
            *((move.prior,) if move and move.leads(top.point, chosen.point) else ()),
            *exclusions,
            *self.ledger.exclusions(),
        )
        return _proposal(chosen, top, best, priors)

    def _starts_in(self, outlooks: tuple[Outlook, ...], chosen: Point) -> tuple[PriorUse, ...]:
        """Return the starts that this choice used: all that were weighed first, then its own."""
        means = {outlook.point: outlook.mean for outlook in outlooks}
        first = len(self.ledger.observations) == 1
        return tuple(
            replace(use, sentence=f"{use.sentence}; {point.text} is forecast at {means[point]:.4g}")
            for point, use in self.starts
            if point in means and (first or point == chosen)
        )

    def _by_steering(
        self, told: tuple[Observation, ...], candidates: tuple[Point, ...]
    ) -> Proposal:
        """Return a start point that is left, else the nearest point in the failing limit's way."""
        top = max(told, key=lambda o: self.ledger.objective.worth(o) or 0.0)
        move = move_from(top)
        ahead = candidates
        if move is not None:
            ahead = tuple(p for p in candidates if move.leads(top.point, p))
        for point, use in self.starts:
            if point in (ahead or candidates):
                return Proposal(point=point, reason="a suggested start", priors=(use,))
        point = nearest_levels(self.ledger.space, top.point, ahead or candidates)
        return Proposal(
            point=point,
            reason=f"at {top.point.text} {failing_limits(top)}",
            priors=() if move is None else (move.prior,),
        )


def most_promising(
    outlooks: tuple[Outlook, ...],
    *,
    best: float,
    pointed: frozenset[Point] = frozenset(),
    starts: frozenset[Point] = frozenset(),
) -> Outlook:
    """Return the outlook with the largest expected gain over the best worth seen.

    Of gains that are alike, one of those that diagnosis or failing limit point to, then a start;
    of equal ones the fewest overrides.
    """
    gains = {outlook.point: outlook.gain_over(best) for outlook in outlooks}
    most = max(gains.values())
    alike = [o for o in outlooks if gains[o.point] >= (1 - ALIKE_FRAC) * most]
    return max(
        alike,
        key=lambda o: (
            most > 0 and o.point in pointed,
            most > 0 and o.point in starts,
            round(gains[o.point], 9),
            round(o.mean, 9),
            o.point in starts,
            -o.point.overrides,
        ),
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


def _proposal(
    chosen: Outlook, top: Observation, best: float, priors: tuple[PriorUse, ...]
) -> Proposal:
    return Proposal(
        point=chosen.point,
        reason=f"at {top.point.text} {failing_limits(top)}; {chosen.point.text} is forecast "
        f"at {chosen.mean:.4g} against {best:.4g}",
        priors=priors,
        forecast=Forecast(
            mean=chosen.mean,
            sd=float(chosen.worths.std()),
            expected_gain=chosen.gain_over(best),
        ),
    )
