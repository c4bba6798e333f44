"""One arm's run as a state machine: prepare, probe, measure, curve, evaluate, profile, stop.

Studies, nights and release gates are made of these; each part yields Steps and is sent Outcomes.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from tasks.domain.arm_sustainable import sustainable_rate_of
from tasks.domain.concurrency_curve import curve_points, next_curve_concurrency
from tasks.domain.endpoint import Checkpoint
from tasks.domain.engine_session import EngineSession
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_diagnosis import diagnose_measurement
from tasks.domain.steps import (
    CheckpointReady,
    Evaluate,
    Evaluated,
    Failed,
    Measure,
    Measured,
    Outcome,
    ProbeText,
    ProfileArm,
    Profiled,
    Step,
    TextProbed,
    TrialStatus,
    checkpoint_step,
    evaluation_key,
    failure_in,
    step_key,
)
from tasks.domain.study_request import Arm, StudyRequest
from tasks.domain.sustainable_rate import SustainableRate
from tasks.domain.trial import KeyedMeasurement, Trial, TrialNotes

MAX_DEGENERATE_FRAC = 0.05

Stepping = Generator[Step, Outcome, bool]


@dataclass(slots=True, kw_only=True)
class ArmRun:
    """The run of one arm. Every part returns False once the trial has failed.

    occasion tells measurements apart that must be made again (a night, a release): it is part of
    every key. traffic is ``reference`` or ``fresh``.
    """

    request: StudyRequest
    arm: Arm
    recall: Mapping[str, Outcome]
    occasion: str = ""
    traffic: str = "reference"

    notes: TrialNotes = field(init=False)
    session: EngineSession | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Start with empty notes."""
        self.notes = TrialNotes(arm=self.arm)

    def prepare(self) -> Stepping:
        """Have the checkpoint made ready; the engine is started by the first step that needs it."""
        request = self.request
        ready = yield checkpoint_step(request, self.arm)
        if not isinstance(ready, CheckpointReady):
            return self._failed(ready)
        self.notes.checkpoint = ready.checkpoint
        self.session = EngineSession(
            arm=self.arm.name,
            checkpoint=ready.checkpoint,
            values=self.arm.values,
            deploy_key=self._key("deploy"),
            warmup_requests=request.load.warmup_requests,
            recall=self.recall,
        )
        return True

    def probe_text(self) -> Stepping:
        """Look at a few completions before any load is spent on a broken checkpoint.

        Dummy weights have no text to look at.
        """
        if self.request.synthetic:
            return True
        outcome = yield from self._do(ProbeText(key=self._key("text"), arm=self.arm.name))
        if not isinstance(outcome, TextProbed):
            return self._failed(outcome)
        self.notes.degenerate_frac = outcome.degenerate_frac
        if outcome.degenerate_frac > MAX_DEGENERATE_FRAC:
            return self._failed(_degenerate(outcome))
        return True

    def measure(self, point: LoadPoint) -> Stepping:
        """Measure one load point."""
        key = self._key(self.traffic, point, self.request.slo, self.request.load.window_s)
        step = Measure(key=key, arm=self.arm.name, point=point, traffic=self.traffic)
        outcome = yield from self._session().measurement_of(step)
        if not isinstance(outcome, Measured):
            return self._failed(outcome)
        self.notes.measurements.append(
            KeyedMeasurement(key=key, measurement=outcome.measurement, profile=outcome.profile)
        )
        return True

    def measure_sustainable(self) -> Stepping:
        """Search the largest multiple of the traffic's rate that keeps the SLO, where planned."""
        plan = self.request.load.sustainable
        if plan is None:
            return True
        found = yield from sustainable_rate_of(
            self._session(),
            plan,
            traffic=self.traffic,
            key_of=lambda point: self._key("sustainable", self.traffic, point, self.request.slo),
        )
        if not isinstance(found, SustainableRate):
            return self._failed(found)
        self.notes.sustainable = found
        return True

    def measure_curve(self) -> Stepping:
        """Measure the concurrency curve, each point chosen from those before."""
        load = self.request.load
        measured: list[Measurement] = []
        while len(measured) < load.curve_points:
            concurrency = next_curve_concurrency(measured, limit=load.curve_limit)
            if concurrency is None:
                break
            point = LoadPoint(
                kind=LoadKind.CLOSED, concurrency=concurrency, duration_s=load.curve_duration_s
            )
            if not (yield from self.measure(point)):
                return False
            measured.append(self.notes.measurements[-1].measurement)
        if measured:
            self.notes.curve = curve_points(measured)
        return True

    def evaluate(self) -> Stepping:
        """Evaluate the checkpoint; its key knows neither values nor load, so it is done once."""
        plan, checkpoint = self.request.evaluation, self._checkpoint()
        if plan is None:
            return True
        step = Evaluate(
            key=evaluation_key(checkpoint, plan),
            arm=self.arm.name,
            checkpoint_sha256=checkpoint.sha256,
            plan=plan,
        )
        outcome = yield from self._do(step)
        if not isinstance(outcome, Evaluated):
            return self._failed(outcome)
        self.notes.accuracy = outcome.report
        return True

    def profile(self) -> Stepping:
        """Record a window of kernels and diagnose the regime's first measurement with it."""
        seconds = self.request.profile_s
        if seconds <= 0:
            return True
        key = self._key("profile", seconds)
        outcome = yield from self._do(ProfileArm(key=key, arm=self.arm.name, seconds=seconds))
        if not isinstance(outcome, Profiled):
            return self._failed(outcome)
        first = self.notes.measurements[0]
        self.notes.profile = replace(
            first.profile, kernels=outcome.kernels, kernels_missing=outcome.missing
        )
        self.notes.diagnosis = diagnose_measurement(
            first.measurement, self.notes.profile, self.arm.values
        )
        return True

    def pause(self) -> Generator[Step, Outcome, None]:
        """Stop the engine; the next part starts a fresh one."""
        if self.session is not None:
            if self.session.deployed is not None and self.notes.startup_s is None:
                self.notes.startup_s = self.session.deployed.startup_s
                self.notes.engine_facts = self.session.deployed.facts
            yield from self.session.close()

    def finish(self) -> Generator[Step, Outcome, Trial]:
        """Stop the engine and return the trial."""
        yield from self.pause()
        return self.notes.finished()

    def _do(self, step: Step) -> Generator[Step, Outcome, Outcome]:
        return (yield from self._session().outcome_of(step))

    def _session(self) -> EngineSession:
        if self.session is None:
            raise RuntimeError("prepare() comes before every other part of an arm's run")
        return self.session

    def _checkpoint(self) -> Checkpoint:
        if self.notes.checkpoint is None:
            raise RuntimeError("prepare() comes before every other part of an arm's run")
        return self.notes.checkpoint

    def _key(self, *what: object) -> str:
        return step_key(
            self.request.measured_part, self._checkpoint(), self.arm.values, self.occasion, *what
        )

    def _failed(self, outcome: Outcome) -> bool:
        self.notes.failure = failure_in(outcome)
        return False


def _degenerate(probe: TextProbed) -> Failed:
    return Failed(
        code="DEGENERATE_OUTPUT",
        message=(
            f"{probe.degenerate_frac:.0%} of {probe.n} greedy completions are empty or loop "
            f"(at most {MAX_DEGENERATE_FRAC:.0%} may); suspect dtype, quantization or tensor "
            "parallelism"
        ),
        status=TrialStatus.INFEASIBLE,
    )
