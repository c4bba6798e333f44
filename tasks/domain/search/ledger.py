"""The memory of a search: what was told, what is left to ask, when to stop.

Every policy keeps one, so that none asks a point twice, leaves the space or exceeds its budget.
"""

from dataclasses import dataclass, field

from tasks.domain.errors import InvalidParameterError
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation
from tasks.domain.search.protocol import NO_LIMIT, Budget, PriorUse, Proposal, Stop
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.steps import TrialStatus


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Observations in the order in which they were told."""

    space: SearchSpace
    objective: Objective
    budget: Budget = NO_LIMIT
    observations: list[Observation] = field(default_factory=list)

    def tell(self, observation: Observation) -> None:
        """Take an observation.

        Raises:
            InvalidParameterError: for a point outside the space or one that was told already.
        """
        point = observation.point
        if point not in self.space.points:
            raise InvalidParameterError(
                f"observation of {point.text} is outside the space of {len(self.space.points)} "
                "points; tell only what was asked"
            )
        if any(told.point == point for told in self.observations):
            raise InvalidParameterError(
                f"{point.text} was told already; a point runs once, tell each observation once",
                code="DUPLICATE_TRIAL",
            )
        self.observations.append(observation)

    @property
    def gpu_s(self) -> float:
        """Seconds of the device spent so far."""
        return sum(o.gpu_s for o in self.observations)

    def open_points(self) -> tuple[Point, ...]:
        """Return what may still be asked, in the space's order."""
        told = {o.point for o in self.observations}
        return tuple(p for p in self.space.points if p not in told and self.ruled_out_by(p) is None)

    def ruled_out_by(self, point: Point) -> Observation | None:
        """Return an infeasible observation that needs no more memory than this point.

        Activations grow with the token budget and sampler buffers with the sequences, so what
        does not fit still does not fit with more of both in the same cell.
        """
        for told in self.observations:
            if (
                told.status is TrialStatus.INFEASIBLE
                and told.point.cell == point.cell
                and told.point.max_num_seqs <= point.max_num_seqs
                and told.point.max_num_batched_tokens <= point.max_num_batched_tokens
            ):
                return told
        return None

    def exclusions(self) -> tuple[PriorUse, ...]:
        """Return what infeasible points taught about points that were never asked."""
        told = {o.point for o in self.observations}
        causes: dict[Point, int] = {}
        for point in self.space.points:
            cause = self.ruled_out_by(point)
            if cause is not None and point not in told:
                causes[cause.point] = causes.get(cause.point, 0) + 1
        return tuple(
            PriorUse(
                source="plan: memory grows with both limits",
                sentence=f"{point.text} cannot run, so {n} larger points are not asked",
            )
            for point, n in causes.items()
        )

    def first(self) -> Proposal | None:
        """Return the reference as long as nothing was told."""
        if self.observations:
            return None
        return Proposal(
            point=self.space.reference,
            reason="the reference comes first: every gain is a gain over it",
            priors=(
                PriorUse(
                    source="catalogue: defaults of this device",
                    sentence=f"vLLM unasked runs {self.space.reference.text}",
                ),
                *self._left_out(),
            ),
        )

    def _left_out(self) -> tuple[PriorUse, ...]:
        """Return what was believed of points and names that are not in the space."""
        space = self.space
        uses = [
            PriorUse(source="catalogue and the installed engine", sentence=sentence)
            for _, sentence in space.dropped
        ]
        if space.refused:
            point, reason = space.refused[0]
            n = len(space.refused)
            of_all = f"{n} of {n + len(space.points)} points cannot run and are not asked"
            uses.append(
                PriorUse(source="plan and vLLM's checks", sentence=f"{of_all}: {point}: {reason}")
            )
        return tuple(uses)

    def stop(self) -> Stop | None:
        """Return why nothing may be asked any more, None while something may."""
        budget, told = self.budget, len(self.observations)
        if budget.trials is not None and told >= budget.trials:
            return Stop(code="TRIALS", reason=f"the budget of {budget.trials} trials is spent")
        if budget.gpu_minutes is not None and told and self._next_s() > budget.gpu_minutes * 60:
            return Stop(
                code="GPU_TIME",
                reason=f"{self.gpu_s / 60:.1f} GPU minutes are spent and one more trial would "
                f"exceed the {budget.gpu_minutes:g} given",
            )
        if not self.open_points():
            return Stop(code="EXHAUSTED", reason=f"all points that can run were told ({told})")
        return self._at_ceiling()

    def _next_s(self) -> float:
        """Return the seconds that would be spent after one more trial of the mean length."""
        return self.gpu_s * (1 + 1 / len(self.observations))

    def _at_ceiling(self) -> Stop | None:
        ceiling = self.objective.ceiling(self.observations)
        best = self.objective.top_worth(self.observations)
        gain = self.objective.min_gain_frac
        if ceiling is None or best <= 0 or ceiling >= best * (1 + gain):
            return None
        return Stop(
            code="CEILING",
            reason=f"the best, {best:.4g}, is within {100 * gain:g} % of {ceiling:.4g}, "
            "which no point can exceed",
        )
