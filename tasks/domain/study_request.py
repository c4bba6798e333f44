"""What a person asks a study to do, with every file already read and checked."""

import hashlib
import json
import math
from dataclasses import dataclass, field

from tasks.domain.catalogue.row import Scenario
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.parameters import ParameterValues, Regime
from tasks.domain.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One assignment that a study compares: a checkpoint's method and engine values.

    searched: its live knobs are found by a search first; ``values`` are what the search keeps.
    cell_of: the name that arms share which differ only in values that need a restart: one of them
    is measured after the searches.
    """

    name: str
    method: str
    values: ParameterValues
    is_reference: bool = False
    searched: bool = False
    cell_of: str = ""


def gpus_of(arm: Arm) -> int:
    """Return how many GPUs one engine of the arm spans: tensor x pipeline parallel size."""
    sizes = (arm.values.get(f"{kind}_parallel_size") for kind in ("tensor", "pipeline"))
    return math.prod(size for size in sizes if isinstance(size, int))


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainablePlan:
    """How an arm's sustainable rate is searched: at most max_probes loads of probe_s seconds.

    highest: the largest multiple of the traffic's rate to try. resolution_frac: how close, as a
    share, the largest multiple that passes and the smallest that fails are brought.
    """

    max_probes: int = 8
    probe_s: float = 60.0
    highest: float = 8.0
    resolution_frac: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The loads that every arm meets.

    rate_scales multiply the traffic's rate; 1.0 is the regime's own and is measured
    ``regime_repeats`` times (the repeats are the study's A/A pairs). With ``rounds`` 2 every arm
    meets the regime's rate again on a fresh engine, the arms in the opposite order: A B B A;
    ``later_round_s`` shortens the later ones to their beginning, None keeps them whole. The
    concurrency curve is closed loop, doubling from 1 to at most ``curve_limit``, then closing in on
    the knee, in at most ``curve_points`` points of ``curve_duration_s`` each. sustainable: None to
    leave the sustainable rate out, which takes minutes an arm.
    """

    rate_scales: tuple[float, ...]
    duration_s: float
    regime_repeats: int = 1
    rounds: int = 1
    later_round_s: float | None = None
    curve_limit: int = 16
    curve_points: int = 0
    curve_duration_s: float = 20.0
    window_s: float = 30.0
    warmup_requests: int = 8
    sustainable: SustainablePlan | None = None

    def open_points(self) -> tuple[LoadPoint, ...]:
        """Return the open-loop points of the first round, the regime's own rate first."""
        others = tuple(
            LoadPoint(kind=LoadKind.OPEN, rate_scale=scale, duration_s=self.duration_s)
            for scale in self.rate_scales
            if scale != 1.0
        )
        return self.regime_points(0) + others

    def regime_points(self, number: int) -> tuple[LoadPoint, ...]:
        """Return the points at the regime's own rate of a round, counted from 0."""
        first = number * self.regime_repeats
        shorter = None if number == 0 else self.later_round_s
        return tuple(
            LoadPoint(
                kind=LoadKind.OPEN,
                rate_scale=1.0,
                duration_s=shorter or self.duration_s,
                repeat=i,
                whole_s=None if shorter is None else self.duration_s,
            )
            for i in range(first, first + self.regime_repeats)
        )

    @property
    def load_s(self) -> float:
        """Seconds of load one arm meets at most, warm-up and draining apart."""
        again = (self.rounds - 1) * self.regime_repeats
        again_s = again * (self.later_round_s or self.duration_s)
        curve_s = self.curve_points * self.curve_duration_s
        return len(self.open_points()) * self.duration_s + again_s + curve_s + self.sustainable_s

    @property
    def sustainable_s(self) -> float:
        """Seconds of load that the sustainable rate takes at most."""
        plan = self.sustainable
        return 0.0 if plan is None else plan.max_probes * plan.probe_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How the live knobs of the searched arms are found, on one engine an arm.

    levels: (knob, values); a knob without levels gets those that catalogue and guide suggest.
    scenario: whose values of the guide are tried, None to follow from regime and SLO.
    trace: hash and part of the traffic that it is measured on. sustainable: how the sustainable
    rates of the defaults and of the best point are searched afterwards on the same engine, in
    probes as long as the search's own; None leaves them out.
    probe_s: seconds of load a point. max_points: the defaults' included. gpu_minutes: of load, None
    without a limit. min_gain_frac: the smallest forecast gain that is worth a point.
    """

    policy: str = "ours"
    levels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    probe_s: float = 30.0
    max_points: int = 8
    gpu_minutes: float | None = None
    min_gain_frac: float = 0.03
    trace: str = ""
    sustainable: SustainablePlan | None = None
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """How accuracy is judged: task name, number of items (None = all), margin as a fraction."""

    task: str
    items: int | None
    margin_frac: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationPlan:
    """The AWQ recipe: bits, group size, calibration samples and tokens a sample."""

    bits: int = 4
    group_size: int = 64
    samples: int = 32
    sequence_tokens: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the measurements depend on and the study does not choose.

    hardware: a GPU's name or the CPU's; device_count: GPUs, or CPU cores.
    """

    hardware: str
    device_count: int
    driver: str | None
    engine: str
    flavour: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """A study: one model, one hardware, one regime, the arms to compare and the gates.

    trace_part: which part of the trace file is offered, empty for all of it. base_values,
    engine_env: what every engine of the model is started with besides the arm's values.
    """

    name: str
    model: str
    model_sha256: str
    regime: Regime
    slo: Slo
    traffic_name: str
    trace_sha256: str
    arms: tuple[Arm, ...]
    load: LoadPlan
    evaluation: EvaluationPlan | None
    quantization: QuantizationPlan
    profile_s: float
    min_gain_frac: float
    seed: int
    surroundings: Surroundings
    synthetic: bool = False
    search: SearchPlan | None = None
    trace_part: str = ""
    base_values: ParameterValues = field(default_factory=ParameterValues)
    engine_env: tuple[tuple[str, str], ...] = ()

    @property
    def measured_part(self) -> str:
        """Canonical text of all that a measurement depends on: neither SLO, gates nor arms."""
        return json.dumps(
            [
                self.model_sha256,
                [self.trace_sha256, self.trace_part],
                [list(self.base_values.items), list(self.engine_env)],
                self.seed,
                [self.surroundings.hardware, self.surroundings.device_count],
                [self.surroundings.driver, self.surroundings.engine, self.surroundings.client],
            ]
        )

    @property
    def study_id(self) -> str:
        """Twelve hex digits that name this study: equal requests have equal ids."""
        gates = [repr(self.slo), self.min_gain_frac, repr(self.evaluation), repr(self.load)]
        gates += [] if self.search is None else [repr(self.search)]
        text = json.dumps(
            [self.name, self.measured_part, self.regime, repr(self.arms), gates, self.profile_s]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def reference(self) -> Arm:
        """The arm that the others are compared with."""
        return next(arm for arm in self.arms if arm.is_reference)
