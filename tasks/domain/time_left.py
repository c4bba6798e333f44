"""How long steps take, roughly, so that a person can be told the time left.

The seconds are those of vLLM's CPU build on two cores (start 50-80 s, one evaluation item about
0.6 s); on a GPU host the load dominates and the estimate errs on the long side.
"""

from tasks.domain.steps import (
    Deploy,
    Evaluate,
    Measure,
    PrepareCheckpoint,
    ProbeText,
    ProfileArm,
    Step,
    WarmUp,
)
from tasks.domain.study_request import StudyRequest

DEPLOY_S = 75.0
WARM_UP_S = 40.0
PREPARE_S = 15.0
PROBE_S = 25.0
ITEM_S = 0.8
DRAIN_S = 4.0
PROFILE_OVERHEAD_S = 40.0


def estimate_s(step: Step) -> float:
    """Return about how many seconds a step takes."""
    if isinstance(step, Measure):
        return step.point.duration_s + DRAIN_S
    if isinstance(step, Evaluate):
        return ITEM_S * (step.plan.items or 200)
    if isinstance(step, ProfileArm):
        return step.seconds + PROFILE_OVERHEAD_S
    fixed = {Deploy: DEPLOY_S, WarmUp: WARM_UP_S, PrepareCheckpoint: PREPARE_S, ProbeText: PROBE_S}
    return fixed.get(type(step), 0.0)


def planned_arm_s(request: StudyRequest) -> float:
    """Return about how many seconds one arm takes when nothing of it is known yet."""
    load = request.load
    probes = 0 if load.sustainable is None else load.sustainable.max_probes
    points = len(load.open_points()) + load.curve_points + probes
    total = DEPLOY_S + WARM_UP_S + PREPARE_S + PROBE_S + load.load_s + points * DRAIN_S
    if request.evaluation is not None:
        total += ITEM_S * (request.evaluation.items or 200)
    if request.profile_s > 0:
        total += request.profile_s + PROFILE_OVERHEAD_S
    return total


def planned_study_s(request: StudyRequest) -> float:
    """Return about how many seconds a whole study takes when nothing of it is known yet."""
    again_s = (request.load.rounds - 1) * (DEPLOY_S + WARM_UP_S)
    arms_s = len(request.arms) * (planned_arm_s(request) + again_s)
    searched = sum(arm.searched for arm in request.arms)
    if request.search is None or not searched:
        return arms_s
    search = request.search
    probes = search.max_points
    if search.sustainable is not None:
        probes += 2 * search.sustainable.max_probes  # the defaults' rate and the best point's
    points_s = probes * (search.probe_s + DRAIN_S)
    return arms_s + searched * (PREPARE_S + DEPLOY_S + WARM_UP_S + points_s)
