"""One engine's life inside a state machine: started only when a step is not yet known.

Yields Deploy, WarmUp, the step itself and Stop; recalls known outcomes without an engine.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from tasks.domain.endpoint import Checkpoint
from tasks.domain.parameters import ParameterValues
from tasks.domain.steps import (
    Deploy,
    Deployed,
    Failed,
    Measure,
    Measured,
    Outcome,
    Step,
    Stop,
    TrialStatus,
    WarmUp,
)
from tasks.domain.validity import client_was_late

Stepping = Generator[Step, Outcome, Outcome]


def recallable(outcome: Outcome) -> bool:
    """Tell whether an outcome may stand for a step that is asked again.

    A measurement that must not be believed is made again; of the failures only INFEASIBLE ones
    are remembered, for the same values give the same failure.
    """
    if isinstance(outcome, Failed):
        return outcome.status is TrialStatus.INFEASIBLE
    if isinstance(outcome, Measured):
        return not outcome.measurement.invalid
    return not isinstance(outcome, Deployed)


@dataclass(slots=True, kw_only=True)
class EngineSession:
    """The engine of one arm: values, what is known already, and whether it runs.

    live: whether its knobs change live. retries: how many transient failures may be answered with
    a fresh engine.
    """

    arm: str
    checkpoint: Checkpoint
    values: ParameterValues
    deploy_key: str
    warmup_requests: int
    recall: Mapping[str, Outcome]
    live: bool = False
    retries: int = 1
    deployed: Deployed | None = field(default=None)

    def outcome_of(self, step: Step) -> Stepping:
        """Yield what is needed to know the step's outcome, and return it."""
        known = self.recall.get(step.key or "")
        if known is not None and recallable(known):
            return known
        while True:
            outcome = yield from self._ensure_engine()
            if not isinstance(outcome, Failed):
                outcome = yield step
            if not (isinstance(outcome, Failed) and outcome.transient and self.retries > 0):
                return outcome
            self.retries -= 1
            yield from self.close()

    def measurement_of(self, step: Measure) -> Stepping:
        """As ``outcome_of``; once more where nothing but the client's lateness spoilt it."""
        outcome = yield from self.outcome_of(step)
        if isinstance(outcome, Measured) and client_was_late(outcome.measurement.flags):
            outcome = yield from self.outcome_of(step)
        return outcome

    def close(self) -> Generator[Step, Outcome, None]:
        """Yield Stop if the engine runs or may run."""
        if self.deployed is not None:
            self.deployed = None
            yield Stop(arm=self.arm)

    def _ensure_engine(self) -> Stepping:
        if self.deployed is not None:
            return self.deployed
        known = self.recall.get(self.deploy_key)
        if isinstance(known, Failed) and recallable(known):
            return known
        outcome = yield Deploy(
            arm=self.arm,
            checkpoint=self.checkpoint,
            values=self.values,
            live=self.live,
            key=self.deploy_key,
        )
        if not isinstance(outcome, Deployed):
            return outcome
        self.deployed = outcome
        warm = yield WarmUp(arm=self.arm, requests=self.warmup_requests)
        return warm if isinstance(warm, Failed) else outcome
