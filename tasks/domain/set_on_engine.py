"""Whether a running engine is the one that a parameter set speaks of.

A set was accepted for one model's weights under an engine started with certain values. What the
engine does not tell is not known to differ; the values that the set itself assigns are not here
(``live_values`` says which of them move and which need a restart).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tasks.domain.errors import ConfigError
from tasks.domain.live_values import LIVE_NAMES, EngineState
from tasks.domain.parameters import ParameterSet, ParameterValues

PACKED_METHODS = ("awq", "awq_marlin", "compressed-tensors")
"""vLLM's quantization methods that AWQ weights are served by (0.24.0, 0.32.0)."""
PLAIN = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWeights:
    """What a server lists under one of its names, and what is known of the folder.

    names: every name that it serves the same weights by. root: where it says that they lie.
    sha256: the checkpoint's, None where its folder is not on this machine or was not read.
    """

    names: tuple[str, ...]
    root: str | None = None
    max_model_len: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which the engine is not what the set speaks of, as texts."""

    field: str
    found: str
    needed: str

    @property
    def accepting(self) -> str:
        """What accepts just this difference."""
        return f"{self.field}={self.found}"


def assigned_values(parameter_set: ParameterSet) -> ParameterValues:
    """Return what a set assigns: its values, and the live ones that its engine was measured with.

    The latter come from the model's own file, and every deployment of the set is rendered with
    them.
    """
    measured = parameter_set.provenance.engine_values.items
    live = {name: value for name, value in measured if name in LIVE_NAMES}
    return ParameterValues.of(live).overriding(parameter_set.values.as_dict())


def differences(
    parameter_set: ParameterSet, state: EngineState, served: ServedWeights
) -> tuple[Difference, ...]:
    """Return every field in which the engine differs from the set's model and provenance."""
    found: list[Difference] = []
    if parameter_set.model not in served.names:
        found += [
            Difference(field="model", found=name, needed=parameter_set.model)
            for name in served.names[:1]
        ]
    found += _checkpoint(parameter_set, state, served)
    reported = state.started_with.as_dict()
    if served.max_model_len is not None:
        reported["max_model_len"] = served.max_model_len
    assigned = assigned_values(parameter_set).as_dict()
    found += [
        Difference(field=name, found=str(reported[name]), needed=str(value))
        for name, value in parameter_set.provenance.engine_values.items
        if name not in assigned and name in reported and value != "auto" and reported[name] != value
    ]
    return tuple(found)


def refuse_differences(
    found: Iterable[Difference],
    *,
    parameter_set: ParameterSet,
    url: str,
    accepted: Iterable[str] = (),
) -> None:
    """Return where every difference was accepted as ``FIELD=FOUND``.

    Raises:
        ConfigError: ENGINE_OTHERWISE, naming each field, what was found and what was needed.
    """
    known = frozenset(accepted)
    left = [difference for difference in found if difference.accepting not in known]
    if not left:
        return
    told = "; ".join(f"{d.field}: found {d.found}, needed {d.needed}" for d in left)
    accepting = " ".join(f"--accept {d.accepting}" for d in left)
    raise ConfigError(
        f"the engine at {url} is not the one that set {parameter_set.name!r} speaks of: {told}; "
        "nothing was moved: name the engine that serves this set, or start one with `retune "
        f"render`; where a difference is meant, {accepting}",
        code="ENGINE_OTHERWISE",
    )


def _checkpoint(
    parameter_set: ParameterSet, state: EngineState, served: ServedWeights
) -> list[Difference]:
    """Return how the weights differ: by their hash, or, where it is not known, by their kind.

    Which kind they are is told by the quantization method alone, so FP8 weights pass as plain.
    """
    needed = parameter_set.provenance.checkpoint_sha256
    if needed is not None and served.sha256 is not None:
        if needed == served.sha256:
            return []
        return [Difference(field="checkpoint_sha256", found=served.sha256, needed=needed)]
    method = state.started_with.get("quantization") or PLAIN
    packed = method in PACKED_METHODS
    if packed == (parameter_set.checkpoint == "awq"):
        return []
    wanted = " or ".join(PACKED_METHODS) if not packed else PLAIN
    return [Difference(field="quantization", found=str(method), needed=wanted)]
