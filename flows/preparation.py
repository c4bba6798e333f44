"""From configuration files to the materials of a run: model, traffic, host, request."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flows.environment import Home, quantizer_python
from flows.host import find_host, surroundings
from flows.materials import (
    Host,
    Materials,
    engine_variables,
    model_values,
    served_dtype,
)
from flows.progress import Reporter
from flows.traffic import doubt_lines, traffic_of
from tasks import quantize
from tasks.adapters.model_files import read_model_spec, read_vocabulary
from tasks.domain.arm_search import SEARCH_TRAFFIC
from tasks.domain.parameters import ParameterSet, Regime
from tasks.domain.site_files import ModelSource, NightlyFiles, NightlyRegime, StudyFiles
from tasks.domain.slo import Slo
from tasks.domain.study_request import Arm, EvaluationPlan, LoadPlan, StudyRequest
from tasks.domain.trace import Trace
from tasks.evaluate import EvaluationMeans
from tasks.quantize import PreparedModel, QuantizingMeans

FRESH_DAY = 1


def prepare_study(
    files: StudyFiles, place: Home, reporter: Reporter, *, host: Host | None = None
) -> Materials:
    """Return the materials of a study; the model is fetched and converted where it is not yet."""
    host = host or find_host(place)
    prepared = prepare_model(files.model, place, reporter)
    trace = traffic_of(files.traffic)
    for line in doubt_lines(trace.notes):
        reporter.line(f"traffic: {line}")
    traces = {"reference": trace}
    search = files.search
    if search is not None:
        source = files.search_traffic or files.traffic
        traces[SEARCH_TRAFFIC] = traffic_of(source)
        told = f"{traces[SEARCH_TRAFFIC].sha256} {source.part}".strip()
        search = replace(search, trace=told)
    request = StudyRequest(
        name=files.name,
        model=files.model.name,
        model_sha256=prepared.sha256,
        regime=files.regime,
        slo=files.slo,
        traffic_name=files.traffic.name,
        trace_sha256=trace.sha256,
        arms=files.arms,
        load=files.load,
        evaluation=files.evaluation,
        quantization=files.model.quantization,
        profile_s=files.profile_s,
        min_gain_frac=files.min_gain_frac,
        seed=files.seed,
        surroundings=surroundings(host),
        synthetic=files.model.synthetic,
        search=search,
        trace_part=files.traffic.part,
        base_values=model_values(files.model, host.device.flavour),
        engine_env=engine_variables(files.model, host.device.flavour),
    )
    return materials_of(
        request, files.model, prepared, traces, place, host, files.evaluation_folder
    )


def prepare_set(
    parameter_set: ParameterSet,
    *,
    name: str,
    model: ModelSource,
    regime: Regime,
    slo: Slo,
    traffic_name: str,
    traces: Mapping[str, Trace],
    trace_part: str,
    load: LoadPlan,
    evaluation: EvaluationPlan | None,
    seed: int,
    place: Home,
    host: Host,
    prepared: PreparedModel,
    evaluation_folder: str,
) -> Materials:
    """Return the materials for measuring one parameter set, as nights and release gates do."""
    measured = traces.get("fresh", traces["reference"])
    arm = Arm(
        name=parameter_set.name,
        method=parameter_set.checkpoint,
        values=parameter_set.values,
        is_reference=True,
    )
    request = StudyRequest(
        name=name,
        model=model.name,
        model_sha256=prepared.sha256,
        regime=regime,
        slo=slo,
        traffic_name=traffic_name,
        trace_sha256=measured.sha256,
        trace_part=trace_part,
        base_values=model_values(model, host.device.flavour),
        engine_env=engine_variables(model, host.device.flavour),
        arms=(arm,),
        load=load,
        evaluation=evaluation,
        quantization=model.quantization,
        profile_s=0.0,
        min_gain_frac=0.05,
        seed=seed,
        surroundings=surroundings(host),
        synthetic=model.synthetic,
    )
    return materials_of(request, model, prepared, dict(traces), place, host, evaluation_folder)


def prepare_night(
    files: NightlyFiles,
    regime: NightlyRegime,
    *,
    place: Home,
    host: Host,
    prepared: PreparedModel,
) -> Materials:
    """Return the materials of one regime's night: reference and fresh traffic, the set in force."""
    traces = {
        "reference": traffic_of(regime.reference),
        "fresh": traffic_of(regime.fresh, seed_offset=FRESH_DAY),
    }
    return prepare_set(
        regime.parameter_set,
        name=f"{files.name}-{regime.regime.value}",
        model=files.model,
        regime=regime.regime,
        slo=regime.slo,
        traffic_name=regime.fresh.name,
        traces=traces,
        trace_part=regime.fresh.part,
        load=files.load,
        evaluation=None,
        seed=files.seed,
        place=place,
        host=host,
        prepared=prepared,
        evaluation_folder=files.evaluation_folder,
    )


def prepare_model(source: ModelSource, place: Home, reporter: Reporter) -> PreparedModel:
    """Return the model's reference checkpoint, converted once and kept by content.

    Raises:
        ConfigError: the folder or package is not there or lacks files.
    """
    reporter.line(f"model: {source.name} from {source.source}")
    means = QuantizingMeans(python=quantizer_python(), models_dir=place.models, hashes=place.hashes)
    return quantize.prepare_model(source.source, means=means)


def materials_of(
    request: StudyRequest,
    model: ModelSource,
    prepared: PreparedModel,
    traces: dict[str, Trace],
    place: Home,
    host: Host,
    evaluation_folder: str,
) -> Materials:
    """Put the materials together; reads the checkpoint's config and tokenizer."""
    return Materials(
        request=request,
        place=place,
        host=host,
        source=model,
        prepared=prepared,
        spec=read_model_spec(prepared.folder, name=model.name),
        vocabulary=read_vocabulary(prepared.folder),
        traces=traces,
        quantizing=QuantizingMeans(
            python=quantizer_python(),
            models_dir=place.models,
            engine_python=host.engine_python,
            engine_dtype=served_dtype(model, host.device.flavour),
            calibration=Path(evaluation_folder) / "calibration.txt",
        ),
        evaluation=EvaluationMeans(folder=Path(evaluation_folder), tokenizer_dir=prepared.folder),
    )
