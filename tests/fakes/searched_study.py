"""A study of a reference and a searched arm, its searches carried out from a script."""

from dataclasses import replace

from tasks.domain.arm_search import Searcher
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.protocol import Budget
from tasks.domain.search.random_grid import GridPolicy
from tasks.domain.search.space import Point, SearchSpace
from tasks.domain.steps import Deploy
from tasks.domain.study import StudyResult, drive, run_study
from tasks.domain.study_request import Arm, SearchPlan, StudyRequest
from tests.fakes.measurements import CHAT_SLO
from tests.fakes.study_script import Script, study_request, two_arms

CAPS = (4, 16, 64)
REFERENCE = two_arms()[1]
TUNED = Arm(name="tuned", method="reference", values=ParameterValues(), searched=True)
BETTER = {4: (60, 120), 16: (180, 0), 64: (120, 60)}


def space() -> SearchSpace:
    points = tuple(
        Point(
            cell=ParameterValues(),
            max_num_seqs=cap,
            max_num_batched_tokens=2048,
            overrides=int(cap != 64),
        )
        for cap in CAPS
    )
    return SearchSpace(points=points, reference=points[-1])


def searcher(trials: int | None = None) -> Searcher:
    objective = Objective(slo=CHAT_SLO)
    ledger = Ledger(space=space(), objective=objective, budget=Budget(trials=trials))
    return Searcher(
        policy=GridPolicy(ledger=ledger),
        space=space(),
        objective=objective,
        envelope=ParameterValues.of({"max_num_seqs": 64, "max_num_batched_tokens": 2048}),
    )


def request(*, rounds: int = 1) -> StudyRequest:
    plain = study_request(REFERENCE, TUNED)
    return replace(plain, search=SearchPlan(probe_s=180.0), load=replace(plain.load, rounds=rounds))


def run(script: Script, *, recall=None, rounds: int = 1, trials: int | None = None) -> StudyResult:
    running = run_study(request(rounds=rounds), recall or {}, searchers={"tuned": searcher(trials)})
    return drive(running, script.carry_out)


def deploys(script: Script) -> list[tuple[str, bool]]:
    return [(step.arm, step.live) for step in script.steps if isinstance(step, Deploy)]
