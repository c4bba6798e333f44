"""``retune plan``: what a study needs, worked out without an engine."""

from pathlib import Path

from flows.environment import home
from flows.host import host_without_engine
from flows.output import number, print_json, print_lines, print_table
from flows.planning import plan_materials
from flows.preparation import prepare_study
from flows.progress import Reporter
from tasks.adapters.config_files.loading import load_study
from tasks.domain.arm_plan import ArmPlan

GIB = 2**30


def plan_command(study: Path, *, as_json: bool) -> int:
    """Print the plan of every arm and the checklist; 1 where every arm is infeasible."""
    place = home()
    materials = prepare_study(
        load_study(study), place, Reporter(quiet=True), host=host_without_engine(place)
    )
    plan = plan_materials(materials)
    if as_json:
        print_json(plan)
    else:
        print_lines([plan.headline])
        print_table(
            f"memory on {materials.host.device.name}",
            (
                "arm",
                "weights GiB",
                "KV bytes/token",
                "KV pool tokens",
                "worst case tokens",
                "concurrency at the trace's p99 lengths",
                "fits",
            ),
            (_memory_row(arm) for arm in plan.arms),
        )
        for arm in plan.arms:
            print_lines(f"{arm.name}: {p.severity.value}: {p.sentence}" for p in arm.problems)
        print_table(
            "pre-deployment checklist",
            ("item", "mark", "evidence"),
            ((f"{r.id} {r.text}", r.mark.value.upper(), r.sentence) for r in plan.checklist),
        )
    return 1 if len(plan.infeasible) == len(plan.arms) else 0


def _memory_row(arm: ArmPlan) -> tuple[str, ...]:
    memory = arm.memory
    if memory is None:
        return (arm.name, "-", "-", "-", "-", "-", "no")
    return (
        arm.name,
        number(memory.weight_bytes / GIB),
        number(memory.kv_bytes_per_token, 0),
        number(memory.kv_pool_tokens, 0),
        number(memory.worst_case_tokens, 0),
        number(memory.concurrency_safe, 0),
        "yes" if arm.feasible else "no",
    )
