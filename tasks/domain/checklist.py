"""The guide's pre-deployment checklist as data: each item checked against recorded evidence.

An item without evidence is UNKNOWN, never a silent pass. Where the guide's own rule is out of
date the item keeps its intent and says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain import checklist_rules as rules
from tasks.domain.checklist_evidence import ChecklistEvidence, Mark


class Section(StrEnum):
    """The guide's six sections."""

    SCENARIO = "1 business scenario"
    HARDWARE = "2 hardware budget"
    PARAMETERS = "3 parameter set"
    QUANTIZATION = "4 quantization decision"
    MONITORING = "5 monitoring and alerts"
    RELEASE = "6 gray release"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """One item: what to make sure of, and the rule that reads the evidence."""

    id: str
    section: Section
    text: str
    check: Callable[[ChecklistEvidence], tuple[Mark, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistResult:
    """One item's mark with the sentence of evidence behind it."""

    id: str
    section: Section
    text: str
    mark: Mark
    sentence: str


ITEMS: tuple[ChecklistItem, ...] = (
    ChecklistItem(id="1.1-priority", section=Section.SCENARIO, check=rules.priority,
                  text="latency or throughput comes first, and max_num_seqs follows from it"),
    ChecklistItem(id="1.2-lengths", section=Section.SCENARIO, check=rules.lengths,
                  text="prompt and output lengths are known and max_model_len covers them"),
    ChecklistItem(id="1.3-reuse", section=Section.SCENARIO, check=rules.reuse,
                  text="it is known whether prompts share prefixes, which prefix caching needs"),
    ChecklistItem(id="2.1-memory", section=Section.HARDWARE, check=rules.memory,
                  text="weights, KV pool and buffers fit the device"),
    ChecklistItem(id="2.2-sharing", section=Section.HARDWARE, check=rules.sharing,
                  text="gpu_memory_utilization leaves room for whatever else uses the GPU"),
    ChecklistItem(id="2.3-cooling", section=Section.HARDWARE, check=rules.cooling,
                  text="the device stays below its throttling temperature under load"),
    ChecklistItem(id="3.1-inflection", section=Section.PARAMETERS, check=rules.inflection,
                  text="max_num_seqs lies before the point where p99 rises steeply"),
    ChecklistItem(id="3.2-worst-case", section=Section.PARAMETERS, check=rules.worst_case,
                  text="max_model_len x max_num_seqs stays within the KV pool"),
    ChecklistItem(id="3.3-headroom", section=Section.PARAMETERS, check=rules.headroom,
                  text="gpu_memory_utilization leaves a tenth of the memory"),
    ChecklistItem(id="3.4-no-swap", section=Section.PARAMETERS, check=rules.no_swap,
                  text="no swapping on an online service; today: no preemption"),
    ChecklistItem(id="3.5-prefix-caching", section=Section.PARAMETERS, check=rules.prefix_caching,
                  text="prefix caching is on where turns or prefixes repeat"),
    ChecklistItem(id="3.6-chunked-prefill", section=Section.PARAMETERS,
                  check=rules.chunked_prefill,
                  text="chunked prefill is on where prompts are long"),
    ChecklistItem(id="4.1-reference", section=Section.QUANTIZATION, check=rules.reference,
                  text="the bf16 reference was evaluated on the business set"),
    ChecklistItem(id="4.2-quantized", section=Section.QUANTIZATION, check=rules.quantized,
                  text="the AWQ checkpoint was evaluated on the same set"),
    ChecklistItem(id="4.3-drop", section=Section.QUANTIZATION, check=rules.accuracy_drop,
                  text="the accuracy drop is shown to be under the margin (1 point of MMLU)"),
    ChecklistItem(id="5.1-temperature", section=Section.MONITORING, check=rules.temperature_alert,
                  text="an alert fires above 85 degrees Celsius"),
    ChecklistItem(id="5.2-preemption", section=Section.MONITORING, check=rules.preemption_alert,
                  text="an alert fires on swapping; today: on preemptions"),
    ChecklistItem(id="5.3-p99", section=Section.MONITORING, check=rules.p99_alert,
                  text="an alert fires when p99 passes 60 % of the SLO"),
    ChecklistItem(id="5.4-hit-rate", section=Section.MONITORING, check=rules.hit_rate_alert,
                  text="an alert fires when the cache hit rate falls under 50 %"),
    ChecklistItem(id="6.1-canary", section=Section.RELEASE, check=rules.canary,
                  text="the new set takes 5 % of the traffic first"),
    ChecklistItem(id="6.2-observation", section=Section.RELEASE, check=rules.observation,
                  text="it is watched for 24 hours before it takes everything"),
    ChecklistItem(id="6.3-rollback", section=Section.RELEASE, check=rules.rollback,
                  text="the old parameter set is at hand for a rollback"),
)  # fmt: skip


def checklist(evidence: ChecklistEvidence) -> tuple[ChecklistResult, ...]:
    """Return every item's result, in the guide's order."""
    results = []
    for item in ITEMS:
        mark, sentence = item.check(evidence)
        results.append(
            ChecklistResult(
                id=item.id, section=item.section, text=item.text, mark=mark, sentence=sentence
            )
        )
    return tuple(results)


def passed(results: tuple[ChecklistResult, ...]) -> bool:
    """Tell whether no item failed; warnings and unknowns are for a person to judge."""
    return all(result.mark is not Mark.FAIL for result in results)
