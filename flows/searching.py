"""What the searches of a study work with: a space, an envelope and a policy for each such arm."""

from flows.materials import Materials, length_profile
from flows.search_starts import kept_start
from flows.study_folder import StudyFolder
from tasks.domain.arm_plan import ArmRequest, plan_arm
from tasks.domain.arm_search import Searcher
from tasks.domain.catalogue.effective import effective_values
from tasks.domain.kv_pool import LengthProfile
from tasks.domain.parameters import ParameterValues
from tasks.domain.problem import errors
from tasks.domain.search.objective import Objective
from tasks.domain.search.protocol import Budget
from tasks.domain.search.space import KNOBS, SEQS, TOKENS, SearchSpace, build_space
from tasks.domain.search.start import SearchStart
from tasks.domain.search.start_points import starting_points, suggested_levels
from tasks.domain.study_request import Arm, SearchPlan
from tasks.domain.trace_profile import profile_trace
from tasks.propose import make_policy


def searchers_of(materials: Materials, folder: StudyFolder) -> dict[str, Searcher]:
    """Return a fresh searcher for every arm that the study marks as searched.

    Raises:
        InvalidParameterError: where not even the arm's defaults can run.
        StorageError: what a search starts from cannot be kept in the study's folder.
    """
    plan = materials.request.search
    if plan is None:
        return {}
    return {
        arm.name: _searcher(materials, folder, arm, plan)
        for arm in materials.request.arms
        if arm.searched
    }


def _searcher(materials: Materials, folder: StudyFolder, arm: Arm, plan: SearchPlan) -> Searcher:
    request = materials.request
    start = kept_start(folder, request, arm, plan)
    space = search_space(materials, arm, plan, start)
    objective = Objective(slo=request.slo, regime=request.regime, min_gain_frac=plan.min_gain_frac)
    policy = make_policy(
        plan.policy,
        space,
        objective,
        seed=request.seed,
        budget=Budget(trials=plan.max_points, gpu_minutes=plan.gpu_minutes),
        starts=starting_points(space, start),
    )
    widest = {name: max(space.levels(name)) for name in KNOBS}
    return Searcher(
        policy=policy, space=space, objective=objective, envelope=arm.values.overriding(widest)
    )


def search_space(
    materials: Materials, arm: Arm, plan: SearchPlan, start: SearchStart
) -> SearchSpace:
    """Return the arm's points: its own values as the one cell, the study's levels as the knobs."""
    own = materials.engine_values(arm.values)
    unasked = effective_values(
        own,
        device=materials.host.device,
        model_max_len=materials.spec.max_position_embeddings,
    )
    defaults = {SEQS: unasked.max_num_seqs, TOKENS: unasked.max_num_batched_tokens}
    levels = {**suggested_levels(defaults, start), **dict(plan.levels)}
    fixed = {name: value for name, value in arm.values.items if name not in KNOBS}
    # Once for all points: profiling a trace takes longer than planning a point.
    lengths = length_profile(profile_trace(materials.traces["reference"]))
    _, pool_tokens = _plan(materials, arm, ParameterValues(), lengths)
    return build_space(
        cells=(ParameterValues.of(fixed),),
        levels=levels,
        defaults=defaults,
        installed=materials.host.installed,
        max_model_len=unasked.max_model_len,
        infeasible=lambda values: _plan(materials, arm, values, lengths)[0],
        kv_tokens=pool_tokens,
    )


def _plan(
    materials: Materials, arm: Arm, values: ParameterValues, lengths: LengthProfile
) -> tuple[str | None, int | None]:
    """Return why the arm cannot run with these values by the plan, and the KV pool in tokens."""
    host = materials.host
    planned = plan_arm(
        ArmRequest(
            name=arm.name,
            model=materials.spec_of(arm.method),
            values=materials.engine_values(arm.values.overriding(values.as_dict())),
        ),
        device=host.device,
        lengths=lengths,
        installed=host.installed if host.installed.arguments else None,
        free_bytes=None,
        cpu_kv_space_gib=materials.source.cpu_kv_cache_gib,
    )
    found = errors(planned.problems)
    pool = None if planned.memory is None else planned.memory.kv_pool_tokens
    return (found[0].sentence if found else None), pool
