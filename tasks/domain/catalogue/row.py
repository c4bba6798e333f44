"""The record of one engine parameter: what it is, where it lives, what the guide says of it.

Knows nothing of any particular parameter; the rows are data in the modules beside this one.
"""

from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.catalogue.installed import at_least
from tasks.domain.hardware import DeviceClass
from tasks.domain.parameters import ParameterValue


class Kind(StrEnum):
    """What a value is made of; JSON values travel as their text."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    CHOICE = "choice"
    TEXT = "text"
    JSON = "json"


class Change(StrEnum):
    """What it takes to change a value: a restart, or the live scheduler plug-in."""

    RESTART = "restart"
    LIVE = "live"


class Scenario(StrEnum):
    """The situations for which the guide recommends values."""

    ONLINE_CHAT = "online chat"
    ONLINE_BATCH = "online batch"
    OFFLINE_BATCH = "offline batch"
    SPECULATIVE = "speculative decoding"
    SHORT_CHAT = "short conversations"
    LONG_DOCUMENTS = "long documents"
    RAG = "retrieval augmented"
    ULTRA_LONG = "ultra-long context"
    WHOLE_GPU = "one instance owns the GPU"
    SHARED_GPU = "instances share the GPU"
    EMBEDDER_BESIDE = "embedder or reranker on the card"
    FAILOVER = "degraded failover"
    USUAL = "the usual case"
    EXTREME_LATENCY = "extreme latency, small batch"
    EXTREME_THROUGHPUT = "extreme throughput, large batch"
    TIGHT_RAM = "host memory is short"
    MULTI_TURN = "multi-turn dialogue"
    SINGLE_TURN = "single-turn questions"
    STRUCTURED_OUTPUT = "structured output, shared examples"
    LONG_PROMPTS_ONLINE = "long prompts, online"
    SHORT_PROMPTS_OFFLINE = "short prompts, offline"
    MODEL_7B = "7B model"
    MODEL_13B_30B = "13B to 30B model"
    MODEL_70B = "70B model"
    MODEL_175B = "175B model and larger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What the guide recommends in one scenario.

    A range is low..high with None for an open end; a switch or a single value is ``value``.
    doubt: why not to follow it blindly today, empty where it stands.
    """

    scenario: Scenario
    reason: str
    low: float | None = None
    high: float | None = None
    value: ParameterValue | None = None
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """The engine's default on a class of device (None: on all the others)."""

    value: ParameterValue | None
    device: DeviceClass | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One parameter of vLLM.

    low and high bound the value (low_open: low itself is excluded); special holds (value, meaning)
    outside or inside that range. added and removed are releases, None where never or unknown.
    in_guide: one of the guide's eight. guide_note: where the guide is wrong or out of date.
    """

    name: str
    kind: Kind
    meaning: str
    change: Change
    source: str
    acts_on: tuple[str, ...]
    defaults: tuple[Default, ...] = ()
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    choices: tuple[str, ...] = ()
    special: tuple[tuple[ParameterValue, str], ...] = ()
    added: str | None = None
    removed: str | None = None
    nearest: str = ""
    couples_with: tuple[str, ...] = ()
    recommended: tuple[Recommended, ...] = ()
    impact: str = ""
    mistakes: tuple[str, ...] = ()
    in_guide: bool = False
    guide_note: str = ""

    @property
    def flag(self) -> str:
        """Return the command-line spelling."""
        return "--" + self.name.replace("_", "-")

    def default_for(self, device: DeviceClass) -> ParameterValue | None:
        """Return the engine's default on this class of device; None is the engine's own None."""
        for default in self.defaults:
            if default.device is device:
                return default.value
        return next((d.value for d in self.defaults if d.device is None), None)

    def exists_in(self, version: str) -> bool:
        """Tell whether a release has the parameter, as far as its span is known."""
        if self.removed is not None and at_least(version, self.removed):
            return False
        return self.added is None or at_least(version, self.added)

    def recommendation(self, scenario: Scenario) -> Recommended | None:
        """Return what the guide says for a scenario, or None where it says nothing."""
        return next((r for r in self.recommended if r.scenario is scenario), None)
