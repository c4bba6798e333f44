"""``retune switch``: move a running engine to a parameter set, no restart, no dropped request."""

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

ALL_MOVED, SOME_NEED_A_RESTART = 0, 1


def switch_command(
    source: str, *, url: str, control: Path | None, wait_s: float, as_json: bool
) -> int:
    """Move what moves live and print it, confirmed by the engine, and what needs a restart."""
    named = read_source(source, home()).parameter_set
    found = deploy.engine_state(url, control_dir=control, lease_dir=home().leases)
    state = found.state
    parameter_set = fitted_set(named, state.version, Reporter())
    plan = split_values(parameter_set.values, state)
    if plan.live:
        state = deploy.move_engine(found.endpoint, plan.moved, wait_s=wait_s)
    if as_json:
        print_json(
            {"set": parameter_set.name, "url": url, "switched": plan.live, "restart": plan.restart,
             "unchanged": plan.unchanged, "kept": plan.kept, "engine": state}
        )  # fmt: skip
    else:
        print_lines(_sentences(parameter_set, plan, state))
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
    lines += [f"kept: {name} {confirmed[name]}, the set does not name it" for name in plan.kept]
    return lines
