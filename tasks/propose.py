"""The proposing verb: build a search policy by name, and replay policies on a measured table.

Optuna is imported when one of its samplers is asked for: a GPU host has no Optuna and needs none.
"""

from enum import StrEnum
from pathlib import Path

from tasks.adapters.measured_table import load_measured_table
from tasks.domain.errors import ConfigError
from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.gp_policy import GpPolicy
from tasks.domain.search.ledger import Ledger
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation
from tasks.domain.search.ours import OurPolicy
from tasks.domain.search.protocol import NO_LIMIT, Budget, Policy
from tasks.domain.search.random_grid import GridPolicy, RandomPolicy
from tasks.domain.search.replay import MeasuredTable, Replay, replay
from tasks.domain.search.space import SearchSpace
from tasks.domain.search.start import search_start
from tasks.domain.search.start_points import Suggested, starting_points


class PolicyName(StrEnum):
    """The searches behind one protocol."""

    OURS = "ours"
    TPE = "tpe"
    GP = "gp"
    RANDOM = "random"
    GRID = "grid"


def policy_name(text: str) -> PolicyName:
    """Return the policy of this name.

    Raises:
        ConfigError: names the policies that there are.
    """
    try:
        return PolicyName(text)
    except ValueError as error:
        names = ", ".join(name.value for name in PolicyName)
        raise ConfigError(f"policy {text!r} is not known; use one of {names}") from error


def make_policy(
    name: str,
    space: SearchSpace,
    objective: Objective,
    *,
    seed: int = 0,
    budget: Budget = NO_LIMIT,
    starts: tuple[Suggested, ...] = (),
    memory: Calibrations | None = None,
) -> Policy:
    """Return a fresh policy. ``memory`` keeps ours from fitting the same points of a table twice.

    ``gp`` is Optuna's sampler where Optuna and torch are installed, else our own Gaussian process.

    Raises:
        ConfigError: POLICY_NOT_INSTALLED for ``tpe`` without Optuna; the name of no policy.
    """
    ledger = Ledger(space=space, objective=objective, budget=budget)
    match policy_name(name):
        case PolicyName.OURS:
            known = {} if memory is None else {space.reference.cell: memory}
            return OurPolicy(ledger=ledger, seed=seed, starts=starts, calibrations=known)
        case PolicyName.TPE:
            return _tpe(ledger, seed)
        case PolicyName.GP:
            return _gp(ledger, seed)
        case PolicyName.RANDOM:
            return RandomPolicy(ledger=ledger, seed=seed)
        case PolicyName.GRID:
            return GridPolicy(ledger=ledger)


def _tpe(ledger: Ledger, seed: int) -> Policy:
    try:
        from tasks.adapters.optuna_search import OptunaPolicy
    except ModuleNotFoundError as error:
        raise ConfigError(
            "policy 'tpe' is Optuna's and Optuna is not installed here; install it, or use ours, "
            "gp, random or grid",
            code="POLICY_NOT_INSTALLED",
        ) from error
    return OptunaPolicy(ledger=ledger, seed=seed, sampler="tpe")


def _gp(ledger: Ledger, seed: int) -> Policy:
    try:
        from tasks.adapters.optuna_search import OptunaPolicy, has_gp_sampler
    except ModuleNotFoundError:
        return GpPolicy(ledger=ledger, seed=seed)
    if has_gp_sampler():
        return OptunaPolicy(ledger=ledger, seed=seed, sampler="gp")
    return GpPolicy(ledger=ledger, seed=seed)


def resume_policy(policy: Policy, stored: tuple[Observation, ...]) -> Policy:
    """Return the policy after it was told what an earlier run had measured, in that order."""
    for observation in stored:
        policy.tell(observation)
    return policy


def read_table(path: Path) -> MeasuredTable:
    """Return a measured table."""
    return load_measured_table(path)


def replay_policy(
    table: MeasuredTable, objective: Objective, *, name: str, seeds: int
) -> tuple[Replay, ...]:
    """Return one replay for each seed 0..seeds-1, with the starts that a study would have."""
    space, memory = table.space(), Calibrations(kv_tokens=table.kv_tokens)
    starts = starting_points(space, search_start(objective.regime, objective.slo))
    return tuple(
        replay(
            table,
            objective,
            lambda s: make_policy(name, space, objective, seed=s, starts=starts, memory=memory),
            seed=seed,
        )
        for seed in range(seeds)
    )
