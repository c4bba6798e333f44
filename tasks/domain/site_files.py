"""The content of configuration files as domain records: sources not yet read, values checked.

Paths are text, already resolved against the file that names them.
"""

from dataclasses import dataclass

from tasks.domain.parameters import ParameterSet, ParameterValues, Regime
from tasks.domain.slo import Slo
from tasks.domain.study_request import Arm, EvaluationPlan, LoadPlan, QuantizationPlan, SearchPlan
from tasks.domain.traffic_model import TrafficModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model: ``package:NAME`` or a folder, and the values every engine of it starts with.

    cpu_values are put over ``values`` where the engine is vLLM's CPU build. engine_env: variables
    put into the engine's environment.
    """

    name: str
    source: str
    dtype: str
    values: ParameterValues
    cpu_values: ParameterValues
    cpu_kv_cache_gib: float | None
    quantization: QuantizationPlan
    synthetic: bool
    engine_env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A part of a trace file and the number of engines that share its traffic.

    find_s: length in seconds of the regime's window to find inside the part by rate, the busiest
    (peak, failover) or the quietest that is not idle (off-peak); None for the whole part.
    rate_req_s: the mean rate to replay it at, None for its own.
    """

    path: str
    start_s: float | None
    end_s: float | None
    find_s: float | None
    replicas: int
    rate_req_s: float | None
    timezone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSource:
    """One regime's traffic: a model to draw ``draw_s`` seconds from, or a file."""

    name: str
    regime: Regime
    source: str
    model: TrafficModel | None = None
    draw_s: float | None = None
    seed: int = 0
    file: TraceFile | None = None

    @property
    def part(self) -> str:
        """Return what is taken of a trace file, empty for all of it: the file's hash names no part.

        Without it two windows of one file would pass for the same traffic.
        """
        file = self.file
        if file is None:
            return ""
        taken = {
            "start_s": file.start_s,
            "end_s": file.end_s,
            "find_s": file.find_s,
            "replicas": None if file.replicas == 1 else file.replicas,
            "rate_req_s": file.rate_req_s,
        }
        return ", ".join(f"{name}={value:g}" for name, value in taken.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFiles:
    """Everything that a study's YAML and the files it names say.

    parameter_set: the set that a release gate holds for this study, None where it names none.
    search_traffic: what the search is measured on, None for the study's own traffic.
    evaluation_folder: where the accuracy task, calibration text and sanity prompts lie.
    """

    path: str
    name: str
    model: ModelSource
    regime: Regime
    slo: Slo
    traffic: TrafficSource
    arms: tuple[Arm, ...]
    load: LoadPlan
    search: SearchPlan | None
    search_traffic: TrafficSource | None
    evaluation: EvaluationPlan | None
    evaluation_folder: str
    profile_s: float
    min_gain_frac: float
    seed: int
    parameter_set: ParameterSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyRegime:
    """One regime of the nightly flow."""

    regime: Regime
    parameter_set: ParameterSet
    slo: Slo
    reference: TrafficSource
    fresh: TrafficSource


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyFiles:
    """Everything that the nightly YAML and the files it names say."""

    path: str
    name: str
    model: ModelSource
    regimes: tuple[NightlyRegime, ...]
    evaluation_folder: str
    load: LoadPlan
    seed: int
