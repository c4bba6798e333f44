"""The four gates an arm must pass, each with its sentence and with what would change it.

A gate answers True, False (for certain) or None (not known). Knows one arm and the reference at a
time; the outcome of a study is decided elsewhere.
"""

from dataclasses import dataclass

from tasks.domain.comparison import MIN_WINDOW_S, MORE_ROUNDS, Comparison, GainVerdict
from tasks.domain.endpoint import Checkpoint
from tasks.domain.measurement import Measurement
from tasks.domain.validity import BLOCKS_WINNING, Flag

Gated = tuple["Reason", str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The study's limits; shares are 0..1.

    min_gain_frac: least gain of goodput worth a change. noise_floor_frac: of two
    alike runs (noise_floor.py), None where no pair was measured (then nothing is promoted).
    accuracy_margin_frac: the drop that the accuracy verdicts were made against, for the
    sentences. min_window_s: shorter windows are merged.
    """

    min_gain_frac: float
    noise_floor_frac: float | None
    accuracy_margin_frac: float = 0.01
    confidence: float = 0.95
    min_window_s: float = MIN_WINDOW_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence:
    """One arm at the regime's load.

    measurements: at that load, in order of repeat. accuracy_verdict: PASS, FAIL or INCONCLUSIVE
    against the reference's checkpoint, None where not evaluated; accuracy_reason: its sentence,
    with its numbers; accuracy_items_needed: how many items would decide. flags: of the trial,
    beside those of its measurements. infeasible: why it cannot run. slo_ok: whether attainment
    reached the SLO's at this load. overrides: how many engine values differ from the engine's
    own. changes_numerics: values such as kv_cache_dtype change the answers, so the same
    checkpoint needs an accuracy verdict of its own.
    """

    name: str
    checkpoint: Checkpoint
    is_reference: bool
    measurements: tuple[Measurement, ...] = ()
    accuracy_verdict: str | None = None
    accuracy_reason: str | None = None
    accuracy_items_needed: int | None = None
    flags: tuple[Flag, ...] = ()
    infeasible: str | None = None
    slo_ok: bool | None = None
    overrides: int = 0
    changes_numerics: bool = False

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        """Return the trial's flags and those of every measurement."""
        return (*self.flags, *(flag for m in self.measurements for flag in m.flags))

    @property
    def n_requests(self) -> int:
        """Return the requests of all measurements together."""
        return sum(m.n_requests for m in self.measurements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One gate's answer: passed is None where it is not known. arm: None for the whole study."""

    gate: str
    arm: str | None
    passed: bool | None
    sentence: str


def measured_invalidly(arm: ArmEvidence) -> str | None:
    """Return why the arm's measurements cannot be compared, None where they can."""
    if arm.infeasible is not None:
        return f"it cannot run: {arm.infeasible}"
    if not arm.measurements:
        return "n=0 measurements at the regime's load"
    invalid = [flag for flag in arm.all_flags if flag.invalid]
    if invalid:
        said = "; ".join(dict.fromkeys(f"{flag.code}: {flag.sentence}" for flag in invalid))
        return f"{said} (n={arm.n_requests} requests)"
    return None


def emulated_arms(arm: ArmEvidence, reference: ArmEvidence) -> tuple[str, ...]:
    """Return the names of those of the two whose speed is an emulated kernel's."""
    return tuple(a.name for a in (arm, reference) if a.checkpoint.kernel == "emulated")


def valid_gate(arm: ArmEvidence, reference: ArmEvidence) -> Gated:
    """Return whether the arm's speed may be believed and is its own.

    Infeasible is a certain no; invalid or missing is not known. Speed of an emulated kernel, on
    either side, promotes nothing.
    """
    fault = measured_invalidly(arm)
    if fault is not None:
        certain = False if arm.infeasible is not None else None
        change = None if certain is False else f"a believable measurement of {arm.name}"
        return _reason("valid", arm, certain, fault), change
    names = " and ".join(emulated_arms(arm, reference))
    if names:
        sentence = (
            f"kernel=emulated on {names}: served dequantized, so its speed "
            f"(n={arm.n_requests} requests) is not the method's own and promotes nothing"
        )
        change = f"a measurement of {names} on hardware that has the kernel"
        return _reason("valid", arm, None, sentence), change
    sentence = (
        f"n={len(arm.measurements)} measurements, n={arm.n_requests} requests, no invalid flag"
    )
    return _reason("valid", arm, True, sentence), None


def accurate_gate(arm: ArmEvidence, reference: ArmEvidence, gates: Gates) -> Gated:
    """Return whether the arm's answers are known to be as good as the reference's.

    The same weights with values that leave the numbers alone need no verdict; dummy weights have
    no accuracy, so between checkpoints they never pass.
    """
    cross = _weights(arm.checkpoint) != _weights(reference.checkpoint)
    verdict, why = arm.accuracy_verdict, arm.accuracy_reason or "no reason was recorded"
    if verdict == "FAIL":
        return _reason("accurate", arm, False, f"FAIL: {why}"), None
    if cross and (arm.checkpoint.synthetic or reference.checkpoint.synthetic):
        sentence = (
            "synthetic weights have no accuracy (n=0 items): no promotion across checkpoints "
            f"({reference.checkpoint.method} to {arm.checkpoint.method})"
        )
        return _reason("accurate", arm, None, sentence), "an accuracy evaluation on real weights"
    if not cross and not arm.changes_numerics:
        sentence = f"same checkpoint {arm.checkpoint.sha256:.12} as the reference: n=0 items needed"
        return _reason("accurate", arm, True, sentence), None
    if verdict == "PASS":
        return _reason("accurate", arm, True, f"PASS: {why}"), None
    margin = f"a drop of less than {gates.accuracy_margin_frac:.2%}"
    needed = arm.accuracy_items_needed
    items = "an unknown number of items" if needed is None else f"n={needed} items"
    sentence = f"{verdict or 'not evaluated'}: {why}; {items} would decide about {margin}"
    return _reason("accurate", arm, None, sentence), (
        f"an accuracy evaluation of {arm.name} with {items}"
    )


def slo_gate(arm: ArmEvidence) -> Gated:
    """Return whether the arm kept the SLO at the regime's load, errors included.

    Latencies of an emulated kernel say neither yes nor no.
    """
    if arm.checkpoint.kernel == "emulated":
        sentence = f"kernel=emulated: the latencies of n={arm.n_requests} requests do not count"
        return _reason("slo", arm, None, sentence), None
    blocking = [flag for flag in arm.all_flags if flag.code in BLOCKS_WINNING]
    if blocking:
        return _reason("slo", arm, False, blocking[0].sentence), None
    if arm.slo_ok is None or not arm.measurements:
        return _reason("slo", arm, None, "n=0 measurements say whether the SLO was kept"), (
            f"a measurement of {arm.name} at the regime's load"
        )
    worst = min(arm.measurements, key=lambda m: (m.attainment_frac, m.n_requests))
    sentence = (
        f"{worst.attainment_frac:.2%} of n={worst.n_requests} requests kept the SLO (95 % "
        f"{worst.attainment_low_frac:.2%}-{worst.attainment_high_frac:.2%}, the worst of "
        f"{len(arm.measurements)} runs), needed {worst.slo.attainment_frac:.2%}"
    )
    change = None if arm.slo_ok else f"a lower rate for {arm.name}, or more replicas"
    return _reason("slo", arm, arm.slo_ok, sentence), change


def better_gate(arm: ArmEvidence, comparison: Comparison | None, gates: Gates) -> Gated:
    """Return whether the arm's goodput is better than the reference's, beyond noise."""
    if comparison is None:
        return _reason("better", arm, None, "n=0 windows: not compared"), None
    if comparison.verdict is GainVerdict.UNDECIDED:
        seconds = comparison.more_load_s
        change = None if seconds is None else f"about {seconds:.0f} s more load for {arm.name}"
        if comparison.under_floor:
            change = f"{arm.name}: {MORE_ROUNDS}"
        return _reason("better", arm, None, comparison.reason), change
    if comparison.verdict is not GainVerdict.BETTER:
        return _reason("better", arm, False, comparison.reason), None
    if gates.noise_floor_frac is None:
        return _reason("better", arm, None, comparison.reason), (
            "an A/A pair of the reference, which sets the noise floor"
        )
    return _reason("better", arm, True, comparison.reason), None


def _weights(checkpoint: Checkpoint) -> tuple[str, str, str]:
    return checkpoint.sha256, checkpoint.method, checkpoint.dtype


def _reason(gate: str, arm: ArmEvidence, passed: bool | None, sentence: str) -> Reason:
    return Reason(gate=gate, arm=arm.name, passed=passed, sentence=f"{arm.name}: {sentence}")
