"""The steps that a flow carries out for the domain, and the outcomes it sends back.

A step with a key has an outcome that may be recalled instead of measured again; a step without
one (start, warm up, stop) is done every time. Steps hold plain values only, never handles.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.accuracy import AccuracyReport
from tasks.domain.endpoint import Checkpoint, Endpoint
from tasks.domain.kernel_table import KernelTable, MissingTable
from tasks.domain.load_point import LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.parameters import ParameterValues
from tasks.domain.profile import Profile
from tasks.domain.request_table import RequestTable
from tasks.domain.study_request import Arm, EvaluationPlan, QuantizationPlan, StudyRequest


class TrialStatus(StrEnum):
    """How a trial ended; only a COMPLETE one can win."""

    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    INFEASIBLE = "INFEASIBLE"
    INVALID = "INVALID"
    FAILED = "FAILED"


def step_key(*parts: object) -> str:
    """Return a content hash of 16 hex digits for a step's identity."""
    text = json.dumps([str(part) for part in parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def evaluation_key(checkpoint: Checkpoint, plan: EvaluationPlan) -> str:
    """Return the key of a checkpoint's accuracy: it knows neither engine values nor load."""
    return step_key("evaluate", checkpoint.sha256, checkpoint.dtype, plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareCheckpoint:
    """Make the checkpoint of a method (``reference`` or ``awq``) ready to be served."""

    key: str
    arm: str
    method: str
    quantization: QuantizationPlan


def checkpoint_step(request: StudyRequest, arm: Arm) -> PrepareCheckpoint:
    """Return the step that makes an arm's checkpoint ready; its key knows model and recipe only."""
    return PrepareCheckpoint(
        key=step_key("checkpoint", request.model_sha256, arm.method, request.quantization),
        arm=arm.name,
        method=arm.method,
        quantization=request.quantization,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """Start an engine with these values and wait for one real completion.

    live: load the scheduler whose knobs change without a restart; the values are its envelope.
    """

    arm: str
    checkpoint: Checkpoint
    values: ParameterValues
    live: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Send requests of the schedule's own shapes until the engine is warm."""

    arm: str
    requests: int
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeText:
    """Look at the text of a few greedy completions: a broken checkpoint loops or is empty."""

    key: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Offer one load and reduce what came back. ``traffic`` names one of the run's traces.

    live: values that the running engine is moved to first. keep_requests: return the requests'
    columns too. stop_when_diverged: end the load early once its queue diverges.
    """

    key: str
    arm: str
    point: LoadPoint
    traffic: str = "reference"
    live: ParameterValues | None = None
    keep_requests: bool = False
    stop_when_diverged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Evaluate the served checkpoint's accuracy."""

    key: str
    arm: str
    checkpoint_sha256: str
    plan: EvaluationPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileArm:
    """Record the kernels of a short window under the regime's load."""

    key: str
    arm: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the arm's engine; nothing of it may be left."""

    arm: str
    key: str | None = None


Step = PrepareCheckpoint | Deploy | WarmUp | ProbeText | Measure | Evaluate | ProfileArm | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReady:
    """The checkpoint and the seconds its making took; None where it lay ready."""

    checkpoint: Checkpoint
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The engine answers. ``facts`` are (name, value) pairs out of its log, for recording."""

    endpoint: Endpoint
    startup_s: float | None
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A step with nothing to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProbed:
    """Share of degenerate completions among n."""

    degenerate_frac: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement and what engine and devices showed meanwhile.

    The raw records lie in the study's folder under the step's key.
    """

    measurement: Measurement
    profile: Profile
    requests: RequestTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An accuracy report of one checkpoint."""

    report: AccuracyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The kernels of a short window of its own, or why there are none."""

    kernels: KernelTable | None
    missing: MissingTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A step that gave no outcome: why, and whether one more try may cure it."""

    code: str
    message: str
    status: TrialStatus
    transient: bool = False


Outcome = CheckpointReady | Deployed | Done | TextProbed | Measured | Evaluated | Profiled | Failed


def failure_in(outcome: Outcome) -> Failed:
    """Return a failed outcome as it is, and one of the wrong kind as the driver's failure."""
    if isinstance(outcome, Failed):
        return outcome
    return Failed(
        code="WRONG_OUTCOME",
        message=f"a driver sent {type(outcome).__name__} for a step of another kind",
        status=TrialStatus.FAILED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutcome:
    """An outcome as it lies on disk, with the name of the step that it answers."""

    step: str
    outcome: Outcome
