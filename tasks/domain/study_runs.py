"""A study as tracking runs: one parent, one flat child a trial, the winner's figures on the parent.

Names follow mlflow/logging-contract.md. A value that was not measured is left out.
"""

from collections.abc import Iterable

from tasks.domain.load_point import LoadKind
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_metrics import to_metrics
from tasks.domain.run_record import RunRecord, RunStatus
from tasks.domain.slo import Slo
from tasks.domain.steps import TrialStatus
from tasks.domain.study import StudyResult
from tasks.domain.study_request import StudyRequest, gpus_of
from tasks.domain.trial import Trial

Pairs = tuple[tuple[str, str], ...]
# What differs between two starts of the same engine is no parameter of the trial.
_OF_ONE_START = frozenset(
    {"evidence", "model", "init_s", "startup_s", "weights_load_s", "torch_compile_s"}
)
Metrics = dict[str, float]


def study_runs(
    request: StudyRequest, result: StudyResult, *, tags: Pairs = (), phase: str = "search"
) -> tuple[RunRecord, ...]:
    """Return the parent's record, then the trials' in the order in which they ran.

    tags: what the driver adds (git_sha, prefect.flow_run_id). The parent carries the metrics of
    the winner, or of the reference where nothing won, else the chart view is empty.
    """
    decision = result.decision
    shown = decision.winner or request.reference.name
    parent_metrics = next(
        (_trial_metrics(trial, request) for trial in result.trials if trial.arm.name == shown), {}
    )
    common: Pairs = (
        ("study_id", request.study_id),
        ("regime", request.regime.value),
        ("phase", phase),
        ("vllm_version", request.surroundings.engine),
        ("gpu", request.surroundings.hardware),
        *tags,
    )
    parent = RunRecord(
        key=request.study_id,
        name=f"{request.name}-{request.study_id}",
        status="FINISHED",
        params=request_params(request),
        metrics=tuple(sorted(parent_metrics.items())),
        tags=(*common, ("verdict", decision.outcome.value), ("shown_arm", shown)),
        artifacts="report",
    )
    children = tuple(trial_run(request, trial, common=common) for trial in result.trials)
    return (parent, *children)


def trial_run(request: StudyRequest, trial: Trial, *, common: Pairs) -> RunRecord:
    """Return one trial's record, a child of the study's."""
    checkpoint = trial.checkpoint
    tags: list[tuple[str, str]] = [*common, ("trial_status", trial.status.value)]
    params = [*request_params(request), ("quant/method", trial.arm.method)]
    values = request.base_values.overriding(trial.arm.values.as_dict())
    params += [(f"vllm/{name}", str(value)) for name, value in values.items]
    params += [(f"env/{name}", value) for name, value in request.engine_env]
    params += [(f"engine/{name}", v) for name, v in trial.engine_facts if name not in _OF_ONE_START]
    tags += [(f"engine/{name}", v) for name, v in trial.engine_facts if name in _OF_ONE_START]
    if checkpoint is not None:
        params.append(("quant/checkpoint_sha256", checkpoint.sha256))
        params.append(("quant/serve_as", checkpoint.serve_as))
        tags += [("kernel", checkpoint.kernel), ("synthetic", str(checkpoint.synthetic).lower())]
    if trial.failure is not None:
        tags += [("failure", trial.failure.code), ("failure_message", trial.failure.message)]
    if trial.diagnosis is not None and trial.diagnosis.bottleneck is not None:
        tags.append(("bottleneck", trial.diagnosis.bottleneck))
    return RunRecord(
        key=f"{request.study_id}-{trial.arm.name}",
        parent_key=request.study_id,
        name=trial.arm.name,
        status=_status(trial),
        params=tuple(params),
        metrics=tuple(sorted(_trial_metrics(trial, request).items())),
        series=_series(trial),
        tags=tuple(tags),
        artifacts=f"trials/{trial.arm.name}",
    )


def request_params(request: StudyRequest) -> Pairs:
    """Return the parameters that all runs of a study share."""
    around = request.surroundings
    return (
        ("study/name", request.name),
        ("model/name", request.model),
        ("model/sha256", request.model_sha256),
        ("trace/name", request.traffic_name),
        ("trace/sha256", request.trace_sha256),
        *((("trace/part", request.trace_part),) if request.trace_part else ()),
        *_slo_params(request.slo),
        ("load/rate_scales", " ".join(f"{scale:g}" for scale in request.load.rate_scales)),
        ("load/duration_s", f"{request.load.duration_s:g}"),
        ("study/seed", str(request.seed)),
        ("study/min_gain_frac", f"{request.min_gain_frac:g}"),
        ("host/device", around.hardware),
        ("host/device_count", str(around.device_count)),
    )


def _slo_params(slo: Slo) -> Pairs:
    limits = (("ttft", slo.ttft_s), ("tpot", slo.tpot_s), ("e2e", slo.e2e_s))
    given = tuple((f"slo/{name}_ms", f"{1e3 * v:g}") for name, v in limits if v is not None)
    return (*given, ("slo/attainment_frac", f"{slo.attainment_frac:g}"))


def _status(trial: Trial) -> RunStatus:
    return "FAILED" if trial.status is TrialStatus.FAILED else "FINISHED"


def _trial_metrics(trial: Trial, request: StudyRequest) -> Metrics:
    regime = trial.at_regime_rate
    metrics = dict(to_metrics(regime[0])) if regime else {}
    for measurement in _others(trial):
        prefix = f"load/{measurement.load_point.name}"
        metrics |= {f"{prefix}/{name}": value for name, value in to_metrics(measurement).items()}
    if trial.startup_s is not None:
        metrics["engine/startup_s"] = trial.startup_s
    if trial.degenerate_frac is not None:
        metrics["text/degenerate_frac"] = trial.degenerate_frac
    if trial.accuracy is not None and request.evaluation is not None:
        task = request.evaluation.task
        metrics[f"eval/{task}_acc"] = trial.accuracy.acc
        metrics[f"eval/{task}_items"] = float(trial.accuracy.n)
    metrics |= _sustainable_metrics(trial, request)
    if trial.curve is not None and trial.curve.inflection.choose is not None:
        metrics["curve/choose_concurrency"] = float(trial.curve.inflection.choose)
    metrics |= _profile_metrics(trial)
    return metrics


def _sustainable_metrics(trial: Trial, request: StudyRequest) -> Metrics:
    """Return the rate and, on GPUs, the rate a GPU: an engine spans TP x PP of them."""
    found = trial.sustainable
    if found is None or found.multiple is None or found.req_s is None:
        return {}
    metrics = {"bench/sustainable_multiple": found.multiple, "bench/sustainable_req_s": found.req_s}
    if request.surroundings.flavour != "cpu":
        metrics["bench/sustainable_req_s_per_gpu"] = found.req_s / gpus_of(trial.arm)
    return metrics


def _others(trial: Trial) -> Iterable[Measurement]:
    first = trial.at_regime_rate[:1]
    for keyed in trial.measurements:
        m = keyed.measurement
        if m.load_point.kind is LoadKind.OPEN and m not in first:
            yield m


def _profile_metrics(trial: Trial) -> Metrics:
    profile = trial.profile
    window = None if profile is None else profile.window
    if window is None:
        return {}
    found = {
        "engine/kv_usage_p95_frac": window.kv_usage_p95_frac,
        "engine/running_mean": window.running_mean,
        "engine/waiting_mean": window.waiting_mean,
        "engine/preemptions": window.preemptions,
        "engine/queue_time_mean_s": window.queue_time_mean_s,
        "engine/iteration_tokens_mean": window.iteration_tokens_mean,
    }
    return {name: value for name, value in found.items() if value is not None}


def _series(trial: Trial) -> tuple[tuple[str, tuple[tuple[int, float], ...]], ...]:
    """Return the concurrency curve (step = concurrency) and goodput by window (step = second)."""
    series: list[tuple[str, tuple[tuple[int, float], ...]]] = []
    if trial.curve is not None:
        points = tuple(
            (point.concurrency, 1e3 * point.p99_s)
            for point in trial.curve.points
            if point.p99_s is not None
        )
        if points:
            series.append((f"curve_ttft_p{100 * trial.curve.quantile:.0f}_ms", points))
    regime = trial.at_regime_rate
    if regime:
        windows = tuple((int(w.start_s), w.goodput_req_s) for w in regime[0].windows)
        series.append(("window_goodput_req_s", windows))
    return tuple(series)
