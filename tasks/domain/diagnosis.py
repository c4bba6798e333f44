"""Applies the rules to a profile: two readings side by side, and one bottleneck to start with.

The first reading is the guide's table over NVML and engine numbers, the second is the roofline.
utilization.memory is a busy share, not bandwidth, and memory.used is always near what vLLM was
given, so where the readings disagree about bandwidth and compute the roofline is followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.diagnosis_alerts import ALERTS
from tasks.domain.diagnosis_facts import Facts, LatencyView, RooflineView, gather_facts
from tasks.domain.diagnosis_rule import Rule
from tasks.domain.diagnosis_rules import (
    BANDWIDTH,
    COMPUTE,
    FIRST_READING,
    OVERHEAD,
    SECOND_READING,
)
from tasks.domain.profile import Profile

_ROOFLINE_LAYERS = (BANDWIDTH, COMPUTE, OVERHEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that holds, with the values that made it hold."""

    rule_id: str
    layer: str
    text: str
    source: str
    seen: tuple[str, ...]
    try_next: tuple[str, ...]
    cause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRule:
    """A rule that neither holds nor fails, and the facts that would decide it."""

    rule_id: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Findings in order of precedence.

    agreement: one sentence on how the readings compare. bottleneck: the layer to work on first,
    None if no rule holds. try_next: what to change and measure, first things first.
    """

    first_reading: tuple[Finding, ...]
    second_reading: tuple[Finding, ...]
    agreement: str
    bottleneck: str | None
    try_next: tuple[str, ...]
    unknown: tuple[UnknownRule, ...] = ()
    alerts: tuple[Finding, ...] = ()


def diagnose(
    profile: Profile,
    *,
    latency: LatencyView,
    roofline: RooflineView | None = None,
    max_num_seqs: int | None = None,
) -> Diagnosis:
    """Return what limits this load point, by the guide's table and by the roofline.

    max_num_seqs: the cap that was in force, None where it is not known.
    """
    facts = gather_facts(profile, latency=latency, roofline=roofline, max_num_seqs=max_num_seqs)
    first, second = _findings(FIRST_READING, facts), _findings(SECOND_READING, facts)
    ordered = _precedence(first, second)
    return Diagnosis(
        first_reading=first,
        second_reading=second,
        agreement=_agreement(first, second),
        bottleneck=ordered[0].layer if ordered else None,
        try_next=tuple(dict.fromkeys(step for found in ordered for step in found.try_next)),
        unknown=_unknown(FIRST_READING + SECOND_READING, facts),
        alerts=_findings(ALERTS, facts),
    )


def ttft_floor_s(prompt_tokens: float, prompt_tok_s: float) -> float:
    """Return the seconds that prefill alone takes: prompt tokens / prefill tokens per second.

    No scheduling brings the TTFT of such a prompt below it; only fewer tokens computed (a
    prefix hit) or a faster prefill do.
    """
    return prompt_tokens / prompt_tok_s


def _findings(rules: Sequence[Rule], facts: Facts) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            rule_id=rule.id,
            layer=rule.layer,
            text=rule.finding,
            source=rule.source,
            seen=tuple(condition.seen(facts) for condition in rule.when),
            try_next=rule.try_next,
            cause=rule.cause,
        )
        for rule in rules
        if rule.holds(facts) is True
    )


def _unknown(rules: Sequence[Rule], facts: Facts) -> tuple[UnknownRule, ...]:
    return tuple(
        UnknownRule(rule_id=rule.id, missing=rule.missing(facts))
        for rule in rules
        if rule.holds(facts) is None
    )


def _precedence(first: Sequence[Finding], second: Sequence[Finding]) -> tuple[Finding, ...]:
    """Causes in the table's order of layers, then symptoms.

    What utilization says of a roof gives way where the roofline says otherwise.
    """
    layers = [rule.layer for rule in FIRST_READING]
    followed = {found.layer for found in second} or set(_ROOFLINE_LAYERS)
    kept = [f for f in first if f.layer in followed or f.layer not in _ROOFLINE_LAYERS]
    causes = sorted(
        (found for found in (*second, *kept) if found.cause),
        key=lambda found: layers.index(found.layer),
    )
    return (*causes, *(found for found in kept if not found.cause))


def _agreement(first: Sequence[Finding], second: Sequence[Finding]) -> str:
    by_guide = tuple(dict.fromkeys(f.layer for f in first if f.layer in _ROOFLINE_LAYERS))
    by_roofline = tuple(dict.fromkeys(f.layer for f in second))
    if not second:
        return "no second reading: the roofline shares were not both measured"
    if not by_guide:
        return (
            f"the guide's table says nothing of bandwidth or compute here; "
            f"the roofline says {' and '.join(by_roofline)}"
        )
    if set(by_guide) & set(by_roofline):
        return f"both readings say {' and '.join(sorted(set(by_guide) & set(by_roofline)))}"
    return (
        f"the readings disagree: utilization says {' and '.join(by_guide)}, the roofline says "
        f"{' and '.join(by_roofline)}; utilization is a busy share, so follow the roofline"
    )
