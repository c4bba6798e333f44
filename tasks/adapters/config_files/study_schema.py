"""What the YAML files of a study may say, key by key, with units in the keys' names."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.adapters.config_files.reading import StrictModel

Number = Annotated[float, Field(strict=False)]
Positive = Annotated[float, Field(gt=0, strict=False)]
Fraction = Annotated[float, Field(gt=0, le=1, strict=False)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
RegimeName = Literal["peak", "off_peak", "failover"]
EngineValue = bool | int | float | str
# The scenarios for which the catalogue holds the guide's values of a live knob.
KnobScenario = Literal[
    "online chat", "online batch", "offline batch", "speculative decoding", "ultra-long context"
]


class SloFile(StrictModel):
    """Limits of one request in seconds; at least one must be given."""

    ttft_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None
    attainment_frac: Fraction = 0.99

    @model_validator(mode="after")
    def _one_limit(self) -> "SloFile":
        if self.ttft_s is None and self.tpot_s is None and self.e2e_s is None:
            raise ValueError("give at least one of ttft_s, tpot_s, e2e_s")
        return self


class QuantizationPart(StrictModel):
    """The AWQ recipe for this model."""

    bits: Literal[4] = 4
    group_size: Annotated[int, Field(ge=16, le=256)] = 128
    samples: Annotated[int, Field(ge=1, le=1024)] = 32
    sequence_tokens: Annotated[int, Field(ge=16, le=4096)] = 128


class ModelFile(StrictModel):
    """A model: where its weights come from and what every engine of it is started with.

    engine_env: variables of the engine's environment, vLLM's own ones only.
    """

    name: Name
    source: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    engine_values: dict[str, EngineValue] = {}
    cpu_engine_values: dict[str, EngineValue] = {}
    cpu_kv_cache_gib: Positive | None = None
    engine_env: dict[Annotated[str, Field(pattern=r"^VLLM_[A-Z0-9_]+$")], str] = {}
    quantization: QuantizationPart = QuantizationPart()
    synthetic: bool = False


class LengthsPart(StrictModel):
    """A length distribution in tokens: lognormal by mean and p50, clipped."""

    mean: Positive
    p50: Positive
    min: Count
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> "LengthsPart":
        if not self.min <= self.p50 <= self.max:
            raise ValueError(f"p50 {self.p50:g} must lie in min..max ({self.min}..{self.max})")
        if self.mean < self.p50:
            raise ValueError(f"mean {self.mean:g} must be at least p50 {self.p50:g}")
        return self


class TrafficModelPart(StrictModel):
    """Drawn traffic: renewal arrivals of the rate and burstiness, lengths, prefix reuse."""

    rate_req_s: Positive
    burstiness_cv: Positive = 1.0
    prompt_tokens: LengthsPart
    output_tokens: LengthsPart
    prefix_reuse_frac: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    draw_s: Positive = 600.0
    seed: int = 0


class TraceFilePart(StrictModel):
    """A trace file: which part of it, and how many engines share it.

    find_s: seconds of the regime's own window to find in the part by its rate.
    rate_req_s replays the part at this mean rate: gaps are stretched alike, burstiness is kept.
    """

    file: str
    start_s: Annotated[float, Field(ge=0, strict=False)] | None = None
    end_s: Positive | None = None
    find_s: Positive | None = None
    replicas: Count = 1
    rate_req_s: Positive | None = None
    timezone: str | None = None


class TrafficFile(StrictModel):
    """Traffic of one regime: a model to draw from, or a trace file; the figures' source."""

    name: Name
    regime: RegimeName
    source: str
    model: TrafficModelPart | None = None
    trace: TraceFilePart | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "TrafficFile":
        if (self.model is None) == (self.trace is None):
            raise ValueError("give exactly one of model (drawn traffic) and trace (a file)")
        return self


class ArmPart(StrictModel):
    """One arm of a study; ``search: true`` finds its live knobs before it is measured."""

    name: Name
    checkpoint: Literal["reference", "awq"]
    values: dict[str, EngineValue] = {}
    reference: bool = False
    search: bool = False


class RatesPart(StrictModel):
    """The search of a sustainable rate: how many probes, how far and how close."""

    max_probes: Annotated[int, Field(ge=2, le=30)] = 8
    highest: Annotated[float, Field(ge=1, le=1000, strict=False)] = 8.0
    resolution_frac: Fraction = 0.05


class SearchPart(StrictModel):
    """The search of the arms' live knobs. traffic: another file than the study's, held out.

    cells: values that need a restart, each searched on an engine of its own; the best cell of an
    arm is confirmed.
    sustainable: also find the sustainable rates of the defaults and of the best point. scenario:
    whose values of the guide are tried; left out, it follows from regime and SLO.
    """

    policy: Literal["ours", "tpe", "gp", "random", "grid"] = "ours"
    cells: dict[str, list[EngineValue]] = {}
    levels: dict[Literal["max_num_seqs", "max_num_batched_tokens"], list[Count]] = {}
    probe_s: Positive = 30.0
    max_points: Annotated[int, Field(ge=2, le=1000)] = 8
    gpu_minutes: Positive | None = None
    min_gain_frac: Fraction = 0.03
    traffic: str | None = None
    sustainable: RatesPart | None = None
    scenario: KnobScenario | None = None


class SustainablePart(RatesPart):
    """The search of an arm's sustainable rate; left out, it is not searched."""

    probe_s: Positive = 60.0


class LoadPart(StrictModel):
    """The loads of a study; one rate scale must be 1.0, the regime's own rate.

    later_round_s: rounds after the first offer only this much of the schedule's beginning, for a
    machine lent by the minute: the A/A pairs are then of few windows, and equal arms pass more
    often than once in twenty (tests/benchmarks/README.md).
    """

    rate_scales: Annotated[list[Positive], Field(min_length=1)]
    duration_s: Positive
    regime_repeats: Annotated[int, Field(ge=1, le=20)] = 1
    rounds: Annotated[int, Field(ge=1, le=10)] = 1
    later_round_s: Positive | None = None
    window_s: Positive = 30.0
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 8
    curve_points: Annotated[int, Field(ge=0, le=20)] = 0
    curve_limit: Annotated[int, Field(ge=1, le=4096)] = 16
    curve_duration_s: Positive = 20.0
    sustainable: SustainablePart | None = None

    @model_validator(mode="after")
    def _has_regime_rate(self) -> "LoadPart":
        if 1.0 not in self.rate_scales:
            raise ValueError("rate_scales must hold 1.0, the regime's own rate")
        if len(set(self.rate_scales)) != len(self.rate_scales):
            raise ValueError("rate_scales holds a value twice; use regime_repeats")
        later = self.later_round_s
        if later is not None and not (self.rounds > 1 and self.window_s <= later < self.duration_s):
            raise ValueError(
                f"later_round_s={later:g} with rounds={self.rounds}; needed rounds of 2 or more "
                f"and at least window_s={self.window_s:g}, less than "
                f"duration_s={self.duration_s:g}; leave it out to repeat the whole"
            )
        return self


class EvaluationPart(StrictModel):
    """The accuracy gate; margin in points of 100. folder: the tasks' own, beside the study."""

    task: Name
    folder: str = "../evaluation"
    items: Annotated[int, Field(ge=1)] | None = None
    margin_points: Annotated[float, Field(gt=0, le=100, strict=False)] = 1.0


class StudyFile(StrictModel):
    """One study; paths are relative to the study's own file."""

    name: Name
    model: str
    regime: RegimeName
    slo: str
    traffic: str
    arms: Annotated[list[ArmPart], Field(min_length=1)]
    load: LoadPart
    search: SearchPart | None = None
    evaluation: EvaluationPart | None = None
    profile_s: Annotated[float, Field(ge=0, le=60, strict=False)] = 2.0
    min_gain_frac: Fraction = 0.05
    seed: int = 0
    parameter_set: str | None = None

    @model_validator(mode="after")
    def _arms_fit(self) -> "StudyFile":
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ValueError(f"arms: names must differ, found {names}")
        references = [arm.name for arm in self.arms if arm.reference]
        if len(references) != 1:
            raise ValueError(f"arms: exactly one must have reference: true, found {references}")
        searched = [arm.name for arm in self.arms if arm.search]
        if bool(searched) != (self.search is not None):
            raise ValueError(
                f"search: arms with search: true are {searched}; give both a search part and such "
                "an arm, or neither"
            )
        if references[0] in searched:
            raise ValueError(
                f"arms: the reference {references[0]!r} is not searched: it is what "
                "gains are gains over; add an arm for the search"
            )
        return self


class NightlyRegimePart(StrictModel):
    """One regime of the nightly flow: the set in force and the traffic to hold it against."""

    regime: RegimeName
    parameter_set: str
    slo: str
    reference: str
    fresh: str


class NightlyFile(StrictModel):
    """The nightly flow: one model, its regimes, the load."""

    name: Name
    model: str
    regimes: Annotated[list[NightlyRegimePart], Field(min_length=1)]
    load: LoadPart
    seed: int = 0
