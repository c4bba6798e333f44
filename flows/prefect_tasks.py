"""How Prefect carries out steps: one visible table of names, timeouts and retries.

Retries are decided by the study itself (a transient failure is answered once, with a fresh
engine), so Prefect repeats nothing; outcomes are recalled from the evidence folder, so Prefect
caches nothing and both drivers agree on what is known.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.domain.errors import TuningError
from tasks.domain.steps import (
    Deploy,
    Evaluate,
    Failed,
    Measure,
    Outcome,
    PrepareCheckpoint,
    ProbeText,
    ProfileArm,
    Step,
    Stop,
    WarmUp,
)

CarryOut = Callable[[Step], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """A Prefect task's name and the seconds after which Prefect gives it up."""

    name: str
    timeout_s: int
    retries: int = 0


POLICIES: dict[type, TaskPolicy] = {
    PrepareCheckpoint: TaskPolicy(name="quantize", timeout_s=7_200),
    Deploy: TaskPolicy(name="deploy", timeout_s=3_900),
    WarmUp: TaskPolicy(name="warm-up", timeout_s=900),
    ProbeText: TaskPolicy(name="probe-text", timeout_s=900),
    Measure: TaskPolicy(name="benchmark", timeout_s=7_200),
    Evaluate: TaskPolicy(name="evaluate", timeout_s=7_200),
    ProfileArm: TaskPolicy(name="profile", timeout_s=900),
    Stop: TaskPolicy(name="stop", timeout_s=180),
}


class StepFailedError(TuningError):
    """Makes a failed step a failed task in Prefect; carries the outcome back to the study."""

    def __init__(self, outcome: Failed) -> None:
        """Keep the outcome."""
        super().__init__(f"{outcome.code}: {outcome.message}", code=outcome.code)
        self.outcome = outcome


def as_prefect_tasks(carry_out: CarryOut) -> CarryOut:
    """Return ``carry_out`` with every step run as a Prefect task of the current flow."""

    def run(step: Step) -> Outcome:
        policy = POLICIES[type(step)]

        @task(
            name=policy.name,
            task_run_name=_run_name(policy.name, step),
            timeout_seconds=policy.timeout_s,
            retries=policy.retries,
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        def attempt() -> Outcome:
            outcome = carry_out(step)
            if isinstance(outcome, Failed):
                raise StepFailedError(outcome)
            return outcome

        try:
            return attempt()
        except StepFailedError as error:
            return error.outcome

    return run


def _run_name(name: str, step: Step) -> str:
    detail = f" {step.point.name}" if isinstance(step, Measure) else ""
    return f"{name} {step.arm}{detail}"
