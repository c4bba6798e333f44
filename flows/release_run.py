"""A release gate: the study's parameter set, planned, looked up and measured once more."""

import datetime as dt
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from flows.environment import Home
from flows.host import find_host
from flows.materials import Materials, attached_otherwise
from flows.planning import infeasible_reasons, plan_materials
from flows.preparation import prepare_model, prepare_set
from flows.progress import Reporter
from flows.recall import KnownOutcomes, shared_outcomes
from flows.recording import Recording, record_runs_of
from flows.set_fitting import fitted_set
from flows.study_folder import StudyFolder
from flows.study_run import Wrap, no_wrap, with_engine
from flows.traffic import traffic_of
from tasks import deploy, quantize
from tasks.domain.accuracy import AccuracyReport
from tasks.domain.codec import to_text
from tasks.domain.errors import ConfigError
from tasks.domain.night_runs import release_runs
from tasks.domain.parameters import ParameterSet
from tasks.domain.release_gate import Gate, GateReason, ReleaseVerdict, gate_release
from tasks.domain.site_files import StudyFiles
from tasks.domain.steps import Evaluated, evaluation_key
from tasks.domain.study import drive


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """The gate's answer, its evidence and where it was recorded."""

    verdict: ReleaseVerdict
    folder: Path
    recording: Recording


def conduct_release(
    files: StudyFiles,
    place: Home,
    *,
    url: str | None = None,
    reporter: Reporter,
    wrap: Wrap = no_wrap,
    tags: tuple[tuple[str, str], ...] = (),
) -> ReleaseReport:
    """Gate the study's parameter set; ``url`` gates a running engine instead of starting one.

    Raises:
        ConfigError: the study names no parameter set.
        DeviceLockedError, StorageError: as a study does.
    """
    if files.parameter_set is None:
        raise ConfigError(
            f"{files.path}: parameter_set: a release gate needs the set that is to go out; name "
            "its file, for example ../parameter_sets/peak.yaml, or registry:NAME@champion"
        )
    attached = None if url is None else deploy.attach_engine(url)
    host = find_host(place, attached=attached)
    parameter_set = fitted_set(files.parameter_set, host.installed.version, reporter)
    materials = prepare_set(
        parameter_set,
        name=f"release-{files.name}",
        model=files.model,
        regime=files.regime,
        slo=files.slo,
        traffic_name=files.traffic.name,
        traces={"reference": traffic_of(files.traffic)},
        trace_part=files.traffic.part,
        load=replace(files.load, rate_scales=(1.0,), curve_points=0),
        evaluation=files.evaluation,
        seed=files.seed,
        place=place,
        host=host,
        prepared=prepare_model(files.model, place, reporter),
        evaluation_folder=files.evaluation_folder,
    )
    materials = replace(materials, attached=attached)
    occasion = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:4]}"
    folder = StudyFolder.of(place, materials.request.name, occasion)
    known = KnownOutcomes(own=folder.outcomes, shared=shared_outcomes(place))
    running = gate_release(
        materials.request,
        occasion=occasion,
        parameter_set=parameter_set.name,
        preflight=_preflight(parameter_set, materials),
        recall=known,
        reference_accuracy=_reference_accuracy(materials, known),
    )
    verdict = with_engine(
        materials, folder, known, reporter, lambda carry_out: drive(running, wrap(carry_out))
    )
    folder.write("report/verdict.json", to_text(verdict, indent=1))
    runs = release_runs(materials.request, verdict, occasion=occasion, tags=tags)
    recording = record_runs_of(runs, materials=materials, folder=folder)
    return ReleaseReport(verdict=verdict, folder=folder.path, recording=recording)


def _reference_accuracy(materials: Materials, known: KnownOutcomes) -> AccuracyReport | None:
    """Return the reference checkpoint's report on record, None where it was never evaluated."""
    plan = materials.request.evaluation
    if plan is None:
        return None
    made = quantize.prepare_checkpoint(
        materials.prepared,
        method="reference",
        plan=materials.request.quantization,
        means=materials.quantizing,
        synthetic=materials.request.synthetic,
    )
    found = known.get(evaluation_key(made.checkpoint, plan))
    return found.report if isinstance(found, Evaluated) else None


def _preflight(parameter_set: ParameterSet, materials: Materials) -> tuple[GateReason, ...]:
    """Return the gates that need no engine: the plan, and the set's age and state."""
    reasons = infeasible_reasons(plan_materials(materials))
    if reasons:
        plan = GateReason(gate="plan", answer=Gate.NO_GO, sentence="; ".join(reasons.values()))
    else:
        plan = GateReason(gate="plan", answer=Gate.GO, sentence="the values fit model and device")
    others = attached_otherwise(materials)
    advice = "gate the engine that serves the set, or start one with its values"
    serves = [
        GateReason(gate="attached", answer=Gate.NO_GO, sentence=f"{found}; {advice}")
        for found in others
    ]
    expires = parameter_set.provenance.expires_on
    today = dt.datetime.now(dt.UTC).date().isoformat()
    if expires is not None and expires < today:
        age = GateReason(
            gate="provenance",
            answer=Gate.NO_GO,
            sentence=f"the set expired on {expires}; run the study again",
        )
    else:
        age = GateReason(
            gate="provenance",
            answer=Gate.GO,
            sentence=f"state {parameter_set.state.value}, expires {expires or 'never'}",
        )
    return (plan, age, *serves)
