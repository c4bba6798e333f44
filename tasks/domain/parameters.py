"""Engine parameter values and parameter sets, as plain records.

Knows vLLM's spelling of names only as text; what a name means is in the catalogue.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ParameterValue = bool | int | float | str


class Regime(StrEnum):
    """The traffic regimes that have a parameter set of their own."""

    PEAK = "peak"
    OFF_PEAK = "off_peak"
    FAILOVER = "failover"


class SetState(StrEnum):
    """How much a parameter set has been shown: baseline claims nothing."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"
    CHAMPION = "champion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterValues:
    """One assignment of engine parameters; what is not named keeps the engine's default.

    ``items`` is sorted by name, so equal assignments are equal records.
    """

    items: tuple[tuple[str, ParameterValue], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, ParameterValue]) -> "ParameterValues":
        """Return the assignment with its names sorted."""
        return cls(items=tuple(sorted(values.items())))

    def as_dict(self) -> dict[str, ParameterValue]:
        """Return a fresh mapping of name to value."""
        return dict(self.items)

    def get(self, name: str) -> ParameterValue | None:
        """Return the value of a name, or None where the engine's default stands."""
        return self.as_dict().get(name)

    def overriding(self, other: Mapping[str, ParameterValue]) -> "ParameterValues":
        """Return these values with those of ``other`` put over them."""
        return ParameterValues.of({**self.as_dict(), **other})


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a parameter set comes from; None means that it was not measured.

    checkpoint_sha256: of the weights that were served. trace_part: which part of the trace.
    engine: vLLM's version; flavour: its build, ``cpu`` or ``cuda``. hardware: the GPU's name or
    the CPU's; device_count: GPUs, or CPU cores. engine_values: what the measured engine was
    started with, the model's own values included; cpu_kv_cache_gib: its KV cache, of the CPU build
    alone. measured_on, expires_on: YYYY-MM-DD. slo: the limits that were judged; slo_values: what
    was measured of them at the regime's own rate (seconds, req/s, 0..1). synthetic: dummy weights.
    """

    study: str | None = None
    study_id: str | None = None
    mlflow_run_ids: tuple[str, ...] = ()
    trace_sha256: str | None = None
    trace_part: str | None = None
    checkpoint_sha256: str | None = None
    engine: str | None = None
    flavour: str | None = None
    hardware: str | None = None
    device_count: int | None = None
    driver: str | None = None
    engine_values: ParameterValues = ParameterValues()
    cpu_kv_cache_gib: float | None = None
    measured_on: str | None = None
    expires_on: str | None = None
    slo: tuple[tuple[str, float], ...] = ()
    slo_values: tuple[tuple[str, float], ...] = ()
    synthetic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSet:
    """Values accepted for one regime of one model, with what has been shown of them."""

    name: str
    regime: Regime
    state: SetState
    model: str
    checkpoint: str
    values: ParameterValues
    provenance: Provenance
    note: str = ""
