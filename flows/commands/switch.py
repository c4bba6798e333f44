"""``retune switch``: move a running engine to a parameter set, no restart, no dropped request."""

from pathlib import Path

from flows.environment import home
from flows.output import print_json, print_lines
from tasks import deploy
from tasks.adapters.config_files.loading import load_parameter_set
from tasks.adapters.vllm_server.environment import PLUGIN_DIR
from tasks.domain.catalogue.translate import translate
from tasks.domain.engine_launch import LIVE_SCHEDULER
from tasks.domain.errors import ConfigError
from tasks.domain.live_values import EngineState, SwitchPlan, split_values
from tasks.domain.parameters import ParameterSet, ParameterValues

ALL_MOVED, SOME_NEED_A_RESTART = 0, 1


def switch_command(
    path: Path, *, url: str, control: Path | None, wait_s: float, as_json: bool
) -> int:
    """Move what moves live and print it, confirmed by the engine, and what needs a restart."""
    parameter_set = load_parameter_set(path)
    found = deploy.engine_state(url, control_dir=control, lease_dir=home().leases)
    values = _values_for(parameter_set, found.state.version)
    plan = split_values(values, found.state)
    state = found.state
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


def _values_for(parameter_set: ParameterSet, version: str) -> ParameterValues:
    """Return the set's values in the running engine's words.

    Raises:
        ConfigError: SET_OF_OTHER_ENGINE, with the reason of every value that cannot be carried.
    """
    earned_on = parameter_set.provenance.engine
    if earned_on is None or earned_on == version:
        return parameter_set.values
    translation = translate(parameter_set.values, earned_on, version)
    if translation.values is None:
        raise ConfigError(
            f"parameter set {parameter_set.name!r} was earned on vLLM {earned_on} and cannot be "
            f"said in {version}: {'; '.join(reason for _, reason in translation.refused)}; run "
            "the study again on this engine",
            code="SET_OF_OTHER_ENGINE",
        )
    return translation.values


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
