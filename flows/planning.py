"""Plans the arms of a run before any engine is started."""

from dataclasses import replace
from functools import partial

from flows.materials import Materials, length_profile
from tasks.domain.arm_plan import ArmRequest
from tasks.domain.checklist_evidence import ChecklistEvidence
from tasks.domain.parameters import Regime
from tasks.domain.problem import errors
from tasks.domain.trace_profile import profile_trace
from tasks.plan import StudyPlan, plan_study


def plan_materials(materials: Materials) -> StudyPlan:
    """Return the plan of every arm: memory, roofline, problems, and the checklist."""
    request = materials.request
    profile = profile_trace(materials.traces["reference"])
    lengths = length_profile(profile)
    arms = tuple(
        ArmRequest(
            name=arm.name,
            model=materials.spec_of(arm.method),
            values=materials.engine_values(arm.values),
        )
        for arm in request.arms
    )
    evidence = ChecklistEvidence(
        values=materials.engine_values(request.reference.values),
        lengths=lengths,
        online=True,
        priority="throughput" if request.regime is Regime.PEAK else "latency",
        reuse_frac=profile.prefix_reuse_frac,
        quantized=any(arm.method != "reference" for arm in request.arms),
        accuracy_margin=request.evaluation.margin_frac if request.evaluation else 0.01,
    )
    host = materials.host
    planned = partial(
        plan_study,
        arms,
        device=host.device,
        lengths=lengths,
        installed=host.installed if host.installed.arguments else None,
        cpu_kv_space_gib=materials.source.cpu_kv_cache_gib,
    )
    memory = next(
        arm.memory for arm in planned(evidence=evidence).arms if arm.name == request.reference.name
    )
    return planned(evidence=replace(evidence, plan=memory))


def infeasible_reasons(plan: StudyPlan) -> dict[str, str]:
    """Return why each arm that cannot run cannot, by its name."""
    return {
        arm.name: "; ".join(problem.sentence for problem in errors(arm.problems))
        or "the plan cannot be computed"
        for arm in plan.infeasible
    }
