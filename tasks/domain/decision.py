"""The decision of a study: promote, keep, reject, or say what is missing.

Gates in order: valid, accurate, inside the SLO, better than noise. A gate that is not known to
be passed (None) is not passed. Knows evidence only; publishing is somebody else's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.comparison import Comparison, GainVerdict, compare_windows
from tasks.domain.decision_gates import (
    ArmEvidence,
    Gates,
    Reason,
    accurate_gate,
    better_gate,
    emulated_arms,
    measured_invalidly,
    slo_gate,
    valid_gate,
)
from tasks.domain.errors import PermanentError

__all__ = [
    "ArmEvidence",
    "Decision",
    "DecisionOutcome",
    "Gates",
    "Reason",
    "StudyEvidence",
    "decide",
]


class DecisionOutcome(StrEnum):
    """PROMOTE a challenger, KEEP the reference, REJECT every challenger, or INCONCLUSIVE."""

    PROMOTE = "PROMOTE"
    KEEP = "KEEP"
    REJECT = "REJECT"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvidence:
    """The arms of a study at the regime's load, in any order; exactly one is the reference.

    seed: of the bootstrap, so that the decision can be made again from the same evidence.
    """

    regime: str
    arms: tuple[ArmEvidence, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the evidence says.

    winner: the promoted arm, None for every outcome but PROMOTE. reasons: each gate of each
    challenger, in order of the arms' names. would_change: what would turn the outcome. compared:
    names of the arms whose goodput was compared, the reference's first.
    """

    outcome: DecisionOutcome
    winner: str | None
    reasons: tuple[Reason, ...]
    would_change: tuple[str, ...]
    compared: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One challenger with its gates; comparison is None where it could not be compared."""

    arm: ArmEvidence
    reasons: tuple[Reason, ...]
    comparison: Comparison | None
    would_change: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return all(reason.passed is True for reason in self.reasons)

    @property
    def failed(self) -> bool:
        """Tell whether a gate is failed for certain, so that nothing unknown can save the arm."""
        return any(reason.passed is False for reason in self.reasons)

    @property
    def no_gain(self) -> bool:
        """Tell whether nothing is wrong with the arm but that it is no better."""
        comparison = self.comparison
        return (
            comparison is not None
            and comparison.verdict is GainVerdict.SAME
            and all(reason.passed is True for reason in self.reasons if reason.gate != "better")
        )


def decide(evidence: StudyEvidence, *, gates: Gates) -> Decision:
    """Return the decision that the evidence supports; the order of the arms does not matter.

    PROMOTE: a challenger passed every gate; of several the one with the fewest overrides among
    those that the best does not beat. KEEP: a sound challenger is no better. REJECT: each
    challenger failed a gate. INCONCLUSIVE: the reference failed, or something that is not known
    could still change the outcome.

    Raises:
        PermanentError: EVIDENCE_SHAPE, unless one arm is the reference and names are unique.
    """
    arms = sorted(evidence.arms, key=lambda arm: arm.name)
    references = [arm for arm in arms if arm.is_reference]
    if len(references) != 1 or len({arm.name for arm in arms}) != len(arms):
        raise PermanentError(
            f"evidence of {evidence.regime} has {len(references)} reference arms among "
            f"{[arm.name for arm in arms]}; needed exactly one, and names that differ",
            code="EVIDENCE_SHAPE",
        )
    reference = references[0]
    fault = measured_invalidly(reference)
    if fault is not None:
        return _reference_failed(reference, fault)
    judged = [_judge(arm, reference, evidence, gates) for arm in arms if not arm.is_reference]
    winners = [j for j in judged if j.passed]
    winner = _tie_break(winners, evidence, gates) if winners else None
    reasons = [reason for j in judged for reason in j.reasons]
    changes = [change for j in judged for change in j.would_change if j is not winner]
    if winner is None:
        reasons += _discriminating(judged, gates)
        changes += _overload_advice(reference, judged)
    elif len(winners) > 1:
        reasons.append(_choice(winner, winners))
    compared = [j.arm.name for j in judged if j.comparison is not None]
    return Decision(
        outcome=_outcome(judged, winner),
        winner=None if winner is None else winner.arm.name,
        reasons=tuple(reasons),
        would_change=tuple(dict.fromkeys(changes)),
        compared=(reference.name, *compared) if compared else (),
    )


def _judge(
    arm: ArmEvidence, reference: ArmEvidence, evidence: StudyEvidence, gates: Gates
) -> _Judged:
    valid, valid_change = valid_gate(arm, reference)
    accurate, accurate_change = accurate_gate(arm, reference, gates)
    inside, inside_change = slo_gate(arm)
    comparison = None
    if measured_invalidly(arm) is None and not emulated_arms(arm, reference):
        comparison = _compare(reference, arm, evidence, gates)
    better, better_change = better_gate(arm, comparison, gates)
    changes = (valid_change, accurate_change, inside_change, better_change)
    return _Judged(
        arm=arm,
        reasons=(valid, accurate, inside, better),
        comparison=comparison,
        would_change=tuple(change for change in changes if change is not None),
    )


def _compare(a: ArmEvidence, b: ArmEvidence, evidence: StudyEvidence, gates: Gates) -> Comparison:
    return compare_windows(
        a.measurements,
        b.measurements,
        min_gain_frac=gates.min_gain_frac,
        noise_floor_frac=gates.noise_floor_frac,
        seed=evidence.seed,
        confidence=gates.confidence,
        min_window_s=gates.min_window_s,
    )


def _tie_break(winners: Sequence[_Judged], evidence: StudyEvidence, gates: Gates) -> _Judged:
    """Return the winner with the fewest overrides among those that the best does not beat."""

    def gain(j: _Judged) -> float:
        return j.comparison.gain_frac or 0.0 if j.comparison is not None else 0.0

    best = min(winners, key=lambda j: (-gain(j), j.arm.overrides, j.arm.name))
    level = [
        j
        for j in winners
        if j is best or _compare(j.arm, best.arm, evidence, gates).verdict is not GainVerdict.BETTER
    ]
    return min(level, key=lambda j: (j.arm.overrides, -gain(j), j.arm.name))


def _outcome(judged: Sequence[_Judged], winner: _Judged | None) -> DecisionOutcome:
    if winner is not None:
        return DecisionOutcome.PROMOTE
    if any(not j.failed and not j.no_gain for j in judged):
        return DecisionOutcome.INCONCLUSIVE
    if not judged or any(j.no_gain for j in judged):
        return DecisionOutcome.KEEP
    return DecisionOutcome.REJECT


def _reference_failed(reference: ArmEvidence, fault: str) -> Decision:
    sentence = f"the reference {reference.name} cannot be compared with: {fault}"
    return Decision(
        outcome=DecisionOutcome.INCONCLUSIVE,
        winner=None,
        reasons=(Reason(gate="valid", arm=reference.name, passed=None, sentence=sentence),),
        would_change=(f"a believable measurement of {reference.name} at the regime's load",),
        compared=(),
    )


def _choice(winner: _Judged, winners: Sequence[_Judged]) -> Reason:
    others = ", ".join(j.arm.name for j in winners if j is not winner)
    sentence = (
        f"{winner.arm.name} ({winner.arm.overrides} overrides) is chosen before {others}: "
        f"n={len(winners)} arms passed every gate, and the best of them is not shown to beat it"
    )
    return Reason(gate="choice", arm=winner.arm.name, passed=True, sentence=sentence)


def _discriminating(judged: Sequence[_Judged], gates: Gates) -> list[Reason]:
    """Return a reason where every arm's goodput lies within the noise of the reference's."""
    compared = [j.comparison for j in judged if j.comparison is not None]
    limit = max(gates.min_gain_frac, gates.noise_floor_frac or 0.0)
    gains = [c.gain_frac for c in compared if c.gain_frac is not None]
    told_apart = any(c.verdict in (GainVerdict.BETTER, GainVerdict.WORSE) for c in compared)
    if told_apart or not gains or len(gains) < len(judged) or max(map(abs, gains)) >= limit:
        return []
    sentence = (
        f"not discriminating: the goodput of all n={len(gains)} challengers lies within "
        f"{limit:.2%} of the reference's ({min(gains):+.2%} to {max(gains):+.2%}, "
        f"n={min(c.n_windows for c in compared)} windows): no winner is named"
    )
    return [Reason(gate="discriminating", arm=None, passed=False, sentence=sentence)]


def _overload_advice(reference: ArmEvidence, judged: Sequence[_Judged]) -> list[str]:
    if reference.slo_ok is not False or any(j.arm.slo_ok is not False for j in judged):
        return []
    return ["no arm keeps the SLO at this load: measure at a lower rate, or add replicas"]
