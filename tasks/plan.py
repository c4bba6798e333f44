"""The planning verb: what every arm of a study needs of memory, and which arms cannot run."""

from dataclasses import dataclass

from tasks.domain.arm_plan import ArmPlan, ArmRequest, plan_arm
from tasks.domain.catalogue.installed import InstalledEngine
from tasks.domain.checklist import ChecklistResult, checklist
from tasks.domain.checklist_evidence import ChecklistEvidence
from tasks.domain.hardware import DeviceSpec
from tasks.domain.kv_pool import LengthProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """Plans of all arms, the preflight checklist, and what must be told before anything runs."""

    arms: tuple[ArmPlan, ...]
    checklist: tuple[ChecklistResult, ...]

    @property
    def infeasible(self) -> tuple[ArmPlan, ...]:
        """Return the arms that would not start."""
        return tuple(arm for arm in self.arms if not arm.feasible)

    @property
    def headline(self) -> str:
        """Return the first line of a report: arms, those that cannot run, unequal parallelism."""
        lines = f"{len(self.arms)} arms, {len(self.infeasible)} infeasible"
        sizes = {arm.name: arm.tensor_parallel_size for arm in self.arms if arm.feasible}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name} at {size}" for name, size in sizes.items())
            return f"tensor_parallel_size differs between arms ({told}); {lines}"
        return lines


def plan_study(
    arms: tuple[ArmRequest, ...],
    *,
    device: DeviceSpec,
    evidence: ChecklistEvidence,
    lengths: LengthProfile | None = None,
    installed: InstalledEngine | None = None,
    free_bytes: int | None = None,
    cpu_kv_space_gib: float | None = None,
) -> StudyPlan:
    """Plan every arm on the device and walk the checklist; nothing is started."""
    plans = tuple(
        plan_arm(
            arm,
            device=device,
            lengths=lengths,
            installed=installed,
            free_bytes=free_bytes,
            cpu_kv_space_gib=cpu_kv_space_gib,
        )
        for arm in arms
    )
    return StudyPlan(arms=plans, checklist=checklist(evidence))
