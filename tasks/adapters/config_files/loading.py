"""Turns YAML files into domain records: follows the paths in them and checks across files."""

from pathlib import Path

from tasks.adapters.config_files.arms import study_arms
from tasks.adapters.config_files.named_set import Registered, named_set, unregistered
from tasks.adapters.config_files.parameter_set_file import engine_values as _values
from tasks.adapters.config_files.parameter_set_file import load_parameter_set as load_parameter_set
from tasks.adapters.config_files.reading import read_model
from tasks.adapters.config_files.study_schema import (
    EvaluationPart,
    LengthsPart,
    LoadPart,
    ModelFile,
    NightlyFile,
    NightlyRegimePart,
    RatesPart,
    SearchPart,
    SloFile,
    StudyFile,
    TrafficFile,
    TrafficModelPart,
)
from tasks.domain.catalogue.row import Scenario
from tasks.domain.errors import ConfigError
from tasks.domain.parameters import Regime
from tasks.domain.set_registry import REGISTRY
from tasks.domain.site_files import (
    ModelSource,
    NightlyFiles,
    NightlyRegime,
    StudyFiles,
    TraceFile,
    TrafficSource,
)
from tasks.domain.slo import Slo
from tasks.domain.study_request import (
    EvaluationPlan,
    LoadPlan,
    QuantizationPlan,
    SearchPlan,
    SustainablePlan,
)
from tasks.domain.traffic_model import LengthDistribution, TrafficModel, lognormal_lengths

SHIPPED_EVALUATION = Path(__file__).resolve().parents[3] / "configs" / "evaluation"


def load_study(path: Path, *, registered: Registered | None = None) -> StudyFiles:
    """Return the study with every file that it names.

    registered: reads a set that is named ``registry:NAME@ALIAS``; without it such a set is not
    read, since only a release gate needs it.

    Raises:
        ConfigError: names the file, the key, the value and what is allowed.
    """
    file = read_model(path, StudyFile)
    model = load_model(_beside(path, file.model))
    traffic = _traffic(path, file.traffic, regime=file.regime)
    searched = None
    if file.search is not None and file.search.traffic is not None:
        searched = _traffic(path, file.search.traffic, regime=file.regime)
    held, parameter_set = file.parameter_set, None
    if held is not None and (registered is not None or not held.startswith(REGISTRY)):
        parameter_set = named_set(
            path, "parameter_set", held, model=model.name, regime=file.regime,
            registered=registered or unregistered,
        )  # fmt: skip
    return StudyFiles(
        path=str(path),
        name=file.name,
        model=model,
        regime=Regime(file.regime),
        slo=load_slo(_beside(path, file.slo)),
        traffic=traffic,
        arms=study_arms(path, file),
        load=_load(file.load),
        search=_search(file.search),
        search_traffic=searched,
        evaluation=_evaluation(file.evaluation),
        evaluation_folder=_evaluation_folder(path, file.evaluation),
        profile_s=file.profile_s,
        min_gain_frac=file.min_gain_frac,
        seed=file.seed,
        parameter_set=parameter_set,
    )


def load_nightly(path: Path, *, registered: Registered = unregistered) -> NightlyFiles:
    """Return the nightly configuration with every file that it names.

    registered: reads a set that is named ``registry:NAME@ALIAS`` instead of a file.

    Raises:
        ConfigError: names the file, the key, the value and what is allowed.
    """
    file = read_model(path, NightlyFile)
    model = load_model(_beside(path, file.model))
    regimes = [part.regime for part in file.regimes]
    if len(set(regimes)) != len(regimes):
        raise ConfigError(f"{path}: regimes: each may be given once, found {regimes}")
    return NightlyFiles(
        path=str(path),
        name=file.name,
        model=model,
        regimes=tuple(_nightly_regime(path, part, model, registered) for part in file.regimes),
        evaluation_folder=_shipped_unless(_beside(path, "evaluation")),
        load=_load(file.load),
        seed=file.seed,
    )


def load_model(path: Path) -> ModelSource:
    """Return a model's source and values; a relative folder is resolved against the file."""
    file = read_model(path, ModelFile)
    source = file.source
    if not source.startswith("package:"):
        source = str(_beside(path, source))
    return ModelSource(
        name=file.name,
        source=source,
        dtype=file.dtype,
        values=_values(path, "engine_values", file.engine_values),
        cpu_values=_values(path, "cpu_engine_values", file.cpu_engine_values),
        cpu_kv_cache_gib=file.cpu_kv_cache_gib,
        engine_env=tuple(sorted(file.engine_env.items())),
        quantization=QuantizationPlan(
            bits=file.quantization.bits,
            group_size=file.quantization.group_size,
            samples=file.quantization.samples,
            sequence_tokens=file.quantization.sequence_tokens,
        ),
        synthetic=file.synthetic,
    )


def load_slo(path: Path) -> Slo:
    """Return the limits of one request."""
    file = read_model(path, SloFile)
    return Slo(
        ttft_s=file.ttft_s,
        tpot_s=file.tpot_s,
        e2e_s=file.e2e_s,
        attainment_frac=file.attainment_frac,
    )


def load_traffic(path: Path) -> TrafficSource:
    """Return one regime's traffic source."""
    file = read_model(path, TrafficFile)
    model = None if file.model is None else _traffic_model(file.model, file.source)
    trace = None
    if file.trace is not None:
        trace = TraceFile(
            path=str(_beside(path, file.trace.file)),
            start_s=file.trace.start_s,
            end_s=file.trace.end_s,
            find_s=file.trace.find_s,
            replicas=file.trace.replicas,
            rate_req_s=file.trace.rate_req_s,
            timezone=file.trace.timezone,
        )
    return TrafficSource(
        name=file.name,
        regime=Regime(file.regime),
        source=file.source,
        model=model,
        draw_s=None if file.model is None else file.model.draw_s,
        seed=0 if file.model is None else file.model.seed,
        file=trace,
    )


def _nightly_regime(
    path: Path, part: NightlyRegimePart, model: ModelSource, registered: Registered
) -> NightlyRegime:
    parameter_set = named_set(
        path, f"regimes.{part.regime}", part.parameter_set, model=model.name, regime=part.regime,
        registered=registered,
    )  # fmt: skip
    return NightlyRegime(
        regime=Regime(part.regime),
        parameter_set=parameter_set,
        slo=load_slo(_beside(path, part.slo)),
        reference=load_traffic(_beside(path, part.reference)),
        fresh=load_traffic(_beside(path, part.fresh)),
    )


def _traffic(path: Path, named: str, *, regime: str) -> TrafficSource:
    traffic = load_traffic(_beside(path, named))
    if traffic.regime != regime:
        raise ConfigError(
            f"{path}: regime: found {regime!r}, but traffic {named} is of regime "
            f"{traffic.regime.value!r}; make them the same"
        )
    return traffic


def _beside(path: Path, named: str) -> Path:
    return (path.parent / named).resolve()


def _load(part: LoadPart) -> LoadPlan:
    return LoadPlan(
        rate_scales=tuple(part.rate_scales),
        duration_s=part.duration_s,
        regime_repeats=part.regime_repeats,
        rounds=part.rounds,
        later_round_s=part.later_round_s,
        curve_limit=part.curve_limit,
        curve_points=part.curve_points,
        curve_duration_s=part.curve_duration_s,
        window_s=part.window_s,
        warmup_requests=part.warmup_requests,
        sustainable=_sustainable(part.sustainable, part.sustainable.probe_s)
        if part.sustainable
        else None,
    )


def _sustainable(part: RatesPart, probe_s: float) -> SustainablePlan:
    return SustainablePlan(
        max_probes=part.max_probes,
        probe_s=probe_s,
        highest=part.highest,
        resolution_frac=part.resolution_frac,
    )


def _search(part: SearchPart | None) -> SearchPlan | None:
    if part is None:
        return None
    return SearchPlan(
        policy=part.policy,
        levels=tuple((name, tuple(sorted(part.levels[name]))) for name in sorted(part.levels)),
        probe_s=part.probe_s,
        max_points=part.max_points,
        gpu_minutes=part.gpu_minutes,
        min_gain_frac=part.min_gain_frac,
        sustainable=_sustainable(part.sustainable, part.probe_s) if part.sustainable else None,
        scenario=None if part.scenario is None else Scenario(part.scenario),
    )


def _evaluation_folder(path: Path, part: EvaluationPart | None) -> str:
    """Return where a study's task lies; without one, where the text probe's prompts lie."""
    if part is not None:
        return str(_beside(path, part.folder))
    return _shipped_unless(_beside(path, "../evaluation"))


def _shipped_unless(folder: Path) -> str:
    return str(folder if folder.is_dir() else SHIPPED_EVALUATION)


def _evaluation(part: EvaluationPart | None) -> EvaluationPlan | None:
    if part is None:
        return None
    return EvaluationPlan(task=part.task, items=part.items, margin_frac=part.margin_points / 100)


def _traffic_model(part: TrafficModelPart, source: str) -> TrafficModel:
    return TrafficModel(
        rate_req_s=part.rate_req_s,
        burstiness=part.burstiness_cv,
        prompt=_lengths(part.prompt_tokens),
        output=_lengths(part.output_tokens),
        prefix_reuse_frac=part.prefix_reuse_frac,
        source=source,
    )


def _lengths(part: LengthsPart) -> LengthDistribution:
    return lognormal_lengths(
        p50_tokens=part.p50, mean_tokens=part.mean, min_tokens=part.min, max_tokens=part.max
    )
