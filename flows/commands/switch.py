"""``retune switch``: move a running engine to a parameter set, no restart, no dropped request."""

from collections.abc import Sequence
from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from flows.progress import Reporter
from flows.set_fitting import fitted_set
from flows.set_source import read_source
from tasks import deploy
from tasks.adapters.vllm_server.environment import PLUGIN_DIR
from tasks.domain.engine_launch import LIVE_SCHEDULER
from tasks.domain.live_values import EngineState, SwitchPlan, split_values
from tasks.domain.parameters import ParameterSet
from tasks.domain.set_on_engine import (
    ServedWeights,
    assigned_values,
    differences,
    refuse_differences,
)

ALL_MOVED, SOME_NEED_A_RESTART = 0, 1


def switch_command(
    source: str,
    *,
    url: str,
    control: Path | None,
    wait_s: float,
    accepted: Sequence[str],
    as_json: bool,
) -> int:
    """Move what moves live and print it, confirmed by the engine, and what needs a restart.

    Raises:
        ConfigError: the engine is not the one that the set speaks of, and it was not accepted.
    """
    named = read_source(source, home()).parameter_set
    found = deploy.engine_state(url, control_dir=control, lease_dir=home().leases)
    state = found.state
    parameter_set = fitted_set(named, state.version, Reporter())
    if parameter_set.provenance.checkpoint_sha256 is not None:
        found = deploy.with_checkpoint(found, hashes=home().hashes)
    others = differences(parameter_set, state, found.served)
    refuse_differences(others, parameter_set=parameter_set, url=url, accepted=accepted)
    plan = split_values(assigned_values(parameter_set), state)
    if plan.moved.items:
        state = deploy.move_engine(found.endpoint, plan.moved, wait_s=wait_s)
    if as_json:
        print_json(
            {"set": parameter_set.name, "url": url, "switched": plan.live, "restart": plan.restart,
             "unchanged": plan.unchanged, "returned": plan.returned, "accepted": others,
             "engine": state}
        )  # fmt: skip
    else:
        print_lines(_sentences(parameter_set, plan, state))
        print_lines(f"accepted: {d.field} {d.found}, the set needs {d.needed}" for d in others)
        print_lines(_doubts(parameter_set, found.served))
    return SOME_NEED_A_RESTART if plan.restart else ALL_MOVED


def live_scheduler_command(*, as_json: bool) -> int:
    """Print what an engine's start needs to load the plug-in."""
    how = {
        "PYTHONPATH": str(PLUGIN_DIR),
        "RETUNE_CONTROL_DIR": "a folder of the engine's user, mode 0700, one for each engine",
        "argument": f"--scheduler-cls {LIVE_SCHEDULER}",
    }
    if as_json:
        print_json(how)
    else:
        print_lines(f"{name}: {text}" for name, text in how.items())
    return 0


def _sentences(parameter_set: ParameterSet, plan: SwitchPlan, state: EngineState) -> list[str]:
    confirmed = state.in_force.as_dict()
    lines = [
        f"set {parameter_set.name} ({parameter_set.state.value}) on {state.model}, vLLM "
        f"{state.version}, change {state.change_id}"
    ]
    lines += [
        f"switched: {c.name} {c.old} -> {confirmed[c.name]}, confirmed by the engine"
        for c in plan.live
    ]
    lines += [
        f"needs a rolling restart: {c.name} {'unset' if c.old is None else c.old} -> {c.new}: "
        f"{c.reason}"
        for c in plan.restart
    ]
    lines += [f"unchanged: {name}" for name in plan.unchanged]
    lines += [
        f"returned: {c.name} {c.old} -> {confirmed[c.name]}, which the engine was started with: "
        "the set does not name it"
        for c in plan.returned
    ]
    return lines


def _doubts(parameter_set: ParameterSet, served: ServedWeights) -> list[str]:
    """Return what could not be held against the set."""
    if parameter_set.provenance.checkpoint_sha256 is None:
        return ["not checked: checkpoint_sha256, which the set does not name"]
    if served.sha256 is None:
        return [f"not checked: checkpoint_sha256, since {served.root} is not on this machine"]
    return []
