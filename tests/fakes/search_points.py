"""Points, rows and observations for tests of the search, from few numbers."""

from collections.abc import Sequence

import numpy as np

from tasks.domain.parameters import ParameterValues
from tasks.domain.search.observation import Observation, RequestRows, observe_rows
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.search.step_model import Limits, OfferedLoad, StepCosts, simulate
from tasks.domain.slo import Slo
from tasks.domain.steps import TrialStatus

SLO = Slo(ttft_s=1.0, tpot_s=0.03)
COSTS = StepCosts(
    fixed_s=0.004,
    per_token_s=2.5e-5,
    per_sequence_s=2e-5,
    per_context_s=2e-8,
    per_request_s=0.01,
    mixed_s=0.001,
    overlap_frac=0.5,
)


def point(seqs: int, tokens: int, *, overrides: int = 0, **cell: bool) -> Point:
    return Point(
        cell=ParameterValues.of(cell),
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        overrides=overrides,
    )


def grid(
    seqs: Sequence[int] = (16, 64, 256), tokens: Sequence[int] = (512, 2048, 8192)
) -> SearchSpace:
    """Return the whole grid with the largest values as its reference."""
    top = (max(seqs), max(tokens))
    points = tuple(
        point(s, t, overrides=(s != top[0]) + (t != top[1])) for s in seqs for t in tokens
    )
    return SearchSpace(points=points, reference=points[-1])


def steady_load(n: int = 60, *, rate: float = 12.0) -> OfferedLoad:
    random = np.random.default_rng(1)
    return OfferedLoad(
        due_s=np.sort(random.uniform(0.0, n / rate, n)),
        prompt_tokens=random.integers(200, 4000, n),
        output_tokens=random.integers(20, 300, n),
    )


def served(
    where: Point, *, costs: StepCosts = COSTS, load: OfferedLoad | None = None
) -> RequestRows:
    """Return what an engine with exactly these costs would give at a point."""
    offered = steady_load()
    seen = simulate(
        COSTS,
        offered,
        Limits(
            max_num_seqs=where.max_num_seqs, max_num_batched_tokens=where.max_num_batched_tokens
        ),
    )
    return RequestRows(
        load=offered,
        ttft_s=seen.ttft_s,
        tpot_s=seen.tpot_s,
        e2e_s=seen.e2e_s,
        duration_s=offered.due_s.size / 12.0,
    )


def observed(where: Point, *, slo: Slo = SLO, gpu_s: float = 15.0) -> Observation:
    return observe_rows(where, served(where), slo=slo, gpu_s=gpu_s)


def unfit(where: Point, status: TrialStatus = TrialStatus.INFEASIBLE) -> Observation:
    return Observation(point=where, status=status, gpu_s=60.0, note="out of memory")
