"""Which engine values move while the engine runs, and what a set asks of a running engine.

Live change is claimed only for the engine versions that were tried with the scheduler plug-in.
"""

from dataclasses import dataclass

from tasks.domain.catalogue.lookup import find, rows
from tasks.domain.catalogue.row import Change, Row
from tasks.domain.parameters import ParameterValue, ParameterValues

TRIED_VERSIONS = ("0.24.0", "0.32.0")
LIVE_NAMES = tuple(row.name for row in rows() if row.change is Change.LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """A running engine as its scheduler plug-in tells it.

    change_id: how many changes it has taken; equal ids mean that nobody moved a value between.
    in_force: the live values of the next step. asked: those it moves to; they differ from in_force
    while running requests drain. envelope: the most that they may be, from the engine's start.
    started_with: every other value that the engine tells, by vLLM's names; unset ones are absent.
    """

    change_id: int
    in_force: ParameterValues
    asked: ParameterValues
    envelope: ParameterValues
    started_with: ParameterValues
    version: str
    model: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """One value that differs from the running engine's; old is None where the engine has none.

    reason: why it needs a restart, empty where it moves live.
    """

    name: str
    old: ParameterValue | None
    new: ParameterValue
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """What a set asks of a running engine.

    live: moves without a restart. restart: does not. unchanged: already so. returned: live values
    that the set does not name go back to those that the engine was started with: a set is the
    whole assignment, not a change to whatever was there.
    """

    live: tuple[ValueChange, ...]
    restart: tuple[ValueChange, ...]
    unchanged: tuple[str, ...]
    returned: tuple[ValueChange, ...]

    @property
    def moved(self) -> ParameterValues:
        """Return the values to ask the engine for."""
        return ParameterValues.of({c.name: c.new for c in (*self.live, *self.returned)})


def change_in(row: Row, version: str) -> Change:
    """Return what it takes to change a parameter of one engine version, the plug-in loaded."""
    tried = version.partition("+")[0] in TRIED_VERSIONS
    return row.change if tried else Change.RESTART


def split_values(values: ParameterValues, state: EngineState) -> SwitchPlan:
    """Return which values of a set move live on the engine, which need a restart, and why."""
    live: list[ValueChange] = []
    restart: list[ValueChange] = []
    unchanged: list[str] = []
    in_force, envelope = state.in_force.as_dict(), state.envelope.as_dict()
    asked = state.asked.as_dict()  # a cap that still drains is on its way to another value
    for name, new in values.items:
        old = in_force.get(name, state.started_with.get(name))
        if _same(old, new) and _same(asked.get(name, old), new):
            unchanged.append(name)
            continue
        reason = _restart_reason(name, old=old, new=new, most=envelope.get(name))
        change = ValueChange(name=name, old=old, new=new, reason=reason)
        (restart if reason else live).append(change)
    return SwitchPlan(
        live=tuple(live),
        restart=tuple(restart),
        unchanged=tuple(unchanged),
        returned=_returned(state, values),
    )


def _restart_reason(
    name: str, *, old: ParameterValue | None, new: ParameterValue, most: ParameterValue | None
) -> str:
    """Return why a value cannot move live, empty where it can."""
    if most is not None:
        above = isinstance(new, int) and isinstance(most, int) and new > most
        return f"the engine was started with {most}, and live values stay below" if above else ""
    row = find(name)
    if new == "auto":
        return f"the engine runs {old}; whether auto would choose that, only a start tells"
    if row is None:
        return "not in the catalogue; only a start reads it"
    if old is None:
        return "the engine does not tell its value; only a start sets it"
    return f"read once, at the start; it acts on {', '.join(row.acts_on)}"


def _same(old: ParameterValue | None, new: ParameterValue) -> bool:
    return old is not None and old == new and isinstance(old, bool) == isinstance(new, bool)


def _returned(state: EngineState, values: ParameterValues) -> tuple[ValueChange, ...]:
    """Return the live values that are not named and are not those of the engine's start."""
    named = values.as_dict()
    in_force, asked = state.in_force.as_dict(), state.asked.as_dict()
    return tuple(
        ValueChange(name=name, old=in_force[name], new=start)
        for name, start in state.envelope.items
        if name not in named and not start == in_force[name] == asked[name]
    )
