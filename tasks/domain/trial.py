"""What a trial gave: the outcomes of one arm's steps, gathered."""

from dataclasses import dataclass, field

from tasks.domain.accuracy import AccuracyReport
from tasks.domain.concurrency_curve import ConcurrencyCurve
from tasks.domain.diagnosis import Diagnosis
from tasks.domain.endpoint import Checkpoint
from tasks.domain.load_point import LoadKind
from tasks.domain.measurement import Measurement
from tasks.domain.profile import Profile
from tasks.domain.steps import Failed, TrialStatus
from tasks.domain.study_request import Arm
from tasks.domain.sustainable_rate import SustainableRate


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMeasurement:
    """A measurement, its profile, and the key under which its records lie."""

    key: str
    measurement: Measurement
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm's outcomes; what was not measured is None or an empty tuple."""

    arm: Arm
    status: TrialStatus
    checkpoint: Checkpoint | None = None
    startup_s: float | None = None
    engine_facts: tuple[tuple[str, str], ...] = ()
    measurements: tuple[KeyedMeasurement, ...] = ()
    sustainable: SustainableRate | None = None
    curve: ConcurrencyCurve | None = None
    degenerate_frac: float | None = None
    accuracy: AccuracyReport | None = None
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    failure: Failed | None = None

    @property
    def at_regime_rate(self) -> tuple[Measurement, ...]:
        """Open-loop measurements at the regime's own rate, in order of repeat."""
        found = (m.measurement for m in self.measurements)
        return tuple(
            m
            for m in found
            if m.load_point.kind is LoadKind.OPEN and m.load_point.rate_scale == 1.0
        )


@dataclass(slots=True, kw_only=True)
class TrialNotes:
    """The outcomes of a trial while it runs; ``finished`` freezes them."""

    arm: Arm
    checkpoint: Checkpoint | None = None
    startup_s: float | None = None
    engine_facts: tuple[tuple[str, str], ...] = ()
    measurements: list[KeyedMeasurement] = field(default_factory=list)
    sustainable: SustainableRate | None = None
    curve: ConcurrencyCurve | None = None
    degenerate_frac: float | None = None
    accuracy: AccuracyReport | None = None
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    failure: Failed | None = None

    def finished(self) -> Trial:
        """Return the trial with the status that its outcomes earn."""
        return Trial(
            arm=self.arm,
            status=self.status(),
            checkpoint=self.checkpoint,
            startup_s=self.startup_s,
            engine_facts=self.engine_facts,
            measurements=tuple(self.measurements),
            sustainable=self.sustainable,
            curve=self.curve,
            degenerate_frac=self.degenerate_frac,
            accuracy=self.accuracy,
            profile=self.profile,
            diagnosis=self.diagnosis,
            failure=self.failure,
        )

    def status(self) -> TrialStatus:
        """Return the status that the outcomes earn so far."""
        if self.failure is not None:
            return self.failure.status
        if not self.measurements:
            return TrialStatus.FAILED
        if any(m.measurement.invalid for m in self.measurements):
            return TrialStatus.INVALID
        return TrialStatus.COMPLETE
