"""The nightly question: does the parameter set in force still hold on today's traffic?

Pure: the two traces were compared before; the fresh one is replayed by the steps it yields.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.arm_run import ArmRun, Stepping
from tasks.domain.drift import DriftReport
from tasks.domain.parameters import Regime
from tasks.domain.slo_holding import Holding, SloHolding, slo_holding
from tasks.domain.steps import Outcome, Step, TrialStatus
from tasks.domain.study_request import StudyRequest
from tasks.domain.trial import Trial


class NightOutcome(StrEnum):
    """KEEP the set, RETUNE it (something no longer holds), or INCONCLUSIVE."""

    KEEP = "KEEP"
    RETUNE = "RETUNE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NightVerdict:
    """What one regime's night gave, with every reason in a sentence."""

    regime: Regime
    parameter_set: str
    outcome: NightOutcome
    reasons: tuple[str, ...]
    drift: DriftReport
    holding: SloHolding | None
    trial: Trial


def revalidate(
    request: StudyRequest,
    *,
    night: str,
    parameter_set: str,
    drift: DriftReport,
    recall: Mapping[str, Outcome],
) -> Generator[Step, Outcome, NightVerdict]:
    """Yield the steps that replay the fresh traffic on the set's values; return the verdict.

    ``request`` has one arm, the set in force, and the fresh trace as its traffic; ``night`` (a
    date) keeps one night's measurements from answering for another's.
    """
    run = ArmRun(
        request=request, arm=request.arms[0], recall=recall, occasion=night, traffic="fresh"
    )
    yield from _replay(run)
    trial = yield from run.finish()
    return night_verdict(request, trial, parameter_set=parameter_set, drift=drift)


def _replay(run: ArmRun) -> Stepping:
    if not (yield from run.prepare()):
        return False
    for point in run.request.load.open_points():
        if not (yield from run.measure(point)):
            return False
    return True


def night_verdict(
    request: StudyRequest, trial: Trial, *, parameter_set: str, drift: DriftReport
) -> NightVerdict:
    """Judge one regime's night.

    RETUNE when the traffic drifted, the SLO is shown broken, or the engine cannot run the set;
    INCONCLUSIVE when nothing believable was measured, the traces are too short to compare, or the
    point estimate misses the target without being shown to; else KEEP.
    """
    reasons = [finding.sentence for finding in drift.findings if finding.drifted]
    outcome = NightOutcome.RETUNE if drift.drifted else NightOutcome.KEEP
    holding: SloHolding | None = None
    if trial.failure is not None or trial.status is not TrialStatus.COMPLETE:
        outcome, sentence = _without_measurement(outcome, trial)
        reasons.append(sentence)
    else:
        holding = slo_holding(trial.at_regime_rate, request.slo)
        reasons.append(holding.sentence)
        if holding.holding is Holding.BROKEN:
            outcome = NightOutcome.RETUNE
        elif outcome is NightOutcome.KEEP and _misses(holding, request):
            outcome = NightOutcome.INCONCLUSIVE
    if not drift.judged:
        reasons.insert(0, "the traces have too few windows to judge drift; give longer ones")
        outcome = NightOutcome.INCONCLUSIVE if outcome is NightOutcome.KEEP else outcome
    elif not drift.drifted:
        reasons.insert(0, "the fresh traffic does not differ from the reference by an effect size")
    return NightVerdict(
        regime=request.regime,
        parameter_set=parameter_set,
        outcome=outcome,
        reasons=tuple(reasons),
        drift=drift,
        holding=holding,
        trial=trial,
    )


def _misses(holding: SloHolding, request: StudyRequest) -> bool:
    attained = holding.attainment_frac
    return attained is None or attained < request.slo.attainment_frac


def _without_measurement(outcome: NightOutcome, trial: Trial) -> tuple[NightOutcome, str]:
    if trial.failure is not None:
        sentence = f"{trial.failure.code}: {trial.failure.message}"
        if trial.status is TrialStatus.INFEASIBLE:
            return NightOutcome.RETUNE, f"the engine cannot run this set: {sentence}"
    else:
        sentence = invalid_sentence(trial)
    kept = outcome if outcome is NightOutcome.RETUNE else NightOutcome.INCONCLUSIVE
    return kept, sentence


def invalid_sentence(trial: Trial) -> str:
    """Say why the trial's measurements must not be believed, in the words of their flags."""
    flags = [
        flag.sentence
        for keyed in trial.measurements
        for flag in keyed.measurement.flags
        if flag.invalid
    ]
    return "the measurement must not be believed: " + "; ".join(flags)
