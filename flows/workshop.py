"""Carries out the steps of one run: holds the engine, the evidence folder and the reporter.

Both drivers use it; it knows neither Prefect nor MLflow. A TuningError becomes a Failed outcome;
everything else passes through, and leaving the workshop stops the engine.
"""

from dataclasses import dataclass, field
from types import TracebackType

from flows.engine_bench import EngineBench
from flows.progress import Reporter
from flows.recall import KnownOutcomes
from flows.step_log import StepLog
from tasks.domain.engine_session import recallable
from tasks.domain.errors import (
    InfeasibleError,
    MeasurementInvalidError,
    StorageError,
    TransientError,
    TuningError,
)
from tasks.domain.steps import (
    Deploy,
    Done,
    Evaluate,
    Failed,
    Measure,
    Outcome,
    PrepareCheckpoint,
    ProbeText,
    ProfileArm,
    Step,
    Stop,
    StoredOutcome,
    TrialStatus,
    WarmUp,
)
from tasks.domain.study_request import StudyRequest
from tasks.domain.time_left import estimate_s, planned_arm_s, planned_study_s


@dataclass(slots=True, kw_only=True)
class Workshop:
    """One run's means. Use it as a context manager: leaving it stops the engine.

    store: outcomes by step key, shared by every run of the same home, so that what was measured
    once is recalled.
    """

    request: StudyRequest
    store: KnownOutcomes
    reporter: Reporter
    bench: EngineBench
    log: StepLog
    _arm: str = field(default="")
    _spent_s: float = field(default=0.0)

    def __enter__(self) -> "Workshop":
        """Return the workshop."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop whatever engine still runs."""
        self.bench.stop()

    def carry_out(self, step: Step) -> Outcome:
        """Do what the step says, keep its outcome where it may be recalled, and return it.

        Raises:
            StorageError: if the evidence cannot be kept: to go on would measure for nothing.
        """
        self._report(step)
        self.log.begin()
        try:
            outcome = self._perform(step)
        except StorageError:
            raise
        except TuningError as error:
            outcome = failure_of(error)
            self.reporter.line(f"{outcome.status}: {outcome.code}: {outcome.message}")
        if step.key is not None and recallable(outcome) and not isinstance(step, PrepareCheckpoint):
            self.store.put(step.key, StoredOutcome(step=type(step).__name__, outcome=outcome))
        self.log.end(step, outcome)
        self._spent_s += estimate_s(step)
        return outcome

    def _perform(self, step: Step) -> Outcome:
        match step:
            case PrepareCheckpoint():
                return self.bench.prepare_checkpoint(step)
            case Deploy():
                return self.bench.deploy(step)
            case WarmUp():
                return self.bench.warm_up(step)
            case ProbeText():
                return self.bench.probe_text(step)
            case Measure():
                return self.bench.measure(step)
            case Evaluate():
                return self.bench.evaluate(step)
            case ProfileArm():
                return self.bench.profile(step)
            case Stop():
                self.bench.stop()
                return Done()

    def _report(self, step: Step) -> None:
        ordered = sorted(self.request.arms, key=lambda arm: not arm.is_reference)
        number = [arm.name for arm in ordered].index(step.arm) + 1
        if self.request.search is None and step.arm != self._arm:
            # What an arm before this one did not have to do was known already.
            self._spent_s = max(self._spent_s, (number - 1) * planned_arm_s(self.request))
        self._arm = step.arm
        left_s = max(0.0, planned_study_s(self.request) - self._spent_s)
        where = f"{self.request.name} · {step.arm} ({number}/{len(ordered)})"
        self.reporter.scope(where, left_s=left_s)
        self.reporter.line(_doing(step))


def failure_of(error: TuningError) -> Failed:
    """Return the outcome that an error makes of a step."""
    if isinstance(error, InfeasibleError):
        status = TrialStatus.INFEASIBLE
    elif isinstance(error, MeasurementInvalidError):
        status = TrialStatus.INVALID
    else:
        status = TrialStatus.FAILED
    return Failed(
        code=error.code,
        message=str(error),
        status=status,
        transient=isinstance(error, TransientError),
    )


def _doing(step: Step) -> str:
    match step:
        case PrepareCheckpoint():
            return f"checkpoint: {step.method}"
        case Deploy():
            return f"deploy: starting the engine on the {step.checkpoint.serve_as} checkpoint"
        case WarmUp():
            return f"warm-up: rounds of {step.requests} requests of the traffic's shapes"
        case ProbeText():
            return "text probe: a few greedy completions"
        case Measure() if step.live is not None:
            point = ", ".join(f"{name}={value}" for name, value in step.live.items)
            return f"search: {point} for {step.point.duration_s:.0f} s"
        case Measure():
            return f"benchmark: load point {step.point.name} for {step.point.duration_s:.0f} s"
        case Evaluate():
            return f"evaluate: {step.plan.task}, {step.plan.items or 'all'} items"
        case ProfileArm():
            return f"profile: kernels of {step.seconds:g} s under load"
        case Stop():
            return "stop: ending the engine"
