"""What is known when the checklist is walked; None is not known."""

from dataclasses import dataclass, field
from enum import StrEnum

from tasks.domain.kv_pool import LengthProfile
from tasks.domain.memory_plan import MemoryPlan
from tasks.domain.parameters import ParameterValues


class Mark(StrEnum):
    """An item's outcome; UNKNOWN is the absence of evidence."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistEvidence:
    """Everything an item may look at.

    priority: "latency" or "throughput". reuse_frac: share of prompt tokens in reusable prefixes.
    other_gpu_bytes: memory that other processes hold on the GPU. inflection_concurrency: the last
    concurrency before p99 rises steeply. preemptions: counted under load with these values.
    accuracy_drop_upper: upper bound of the drop, as a fraction (0.01 is one point). alerts: names
    of configured alert rules with their thresholds, in the units of their names.
    """

    values: ParameterValues = field(default_factory=ParameterValues)
    plan: MemoryPlan | None = None
    lengths: LengthProfile | None = None
    online: bool | None = None
    priority: str | None = None
    reuse_frac: float | None = None
    other_gpu_bytes: int | None = None
    max_temperature_celsius: float | None = None
    throttled: bool | None = None
    inflection_concurrency: int | None = None
    preemptions: int | None = None
    quantized: bool | None = None
    reference_evaluated: bool | None = None
    quantized_evaluated: bool | None = None
    accuracy_drop_upper: float | None = None
    accuracy_margin: float = 0.01
    alerts: tuple[tuple[str, float], ...] | None = None
    canary_frac: float | None = None
    observation_s: float | None = None
    rollback_set: str | None = None

    def alert(self, name: str) -> float | None:
        """Return the threshold of an alert rule, None where there is no such rule."""
        return dict(self.alerts or ()).get(name)
