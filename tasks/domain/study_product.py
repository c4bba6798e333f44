"""The parameter set that a study's decision leaves: never more than was shown."""

from dataclasses import replace

from tasks.domain.decision import DecisionOutcome
from tasks.domain.parameters import ParameterSet, ParameterValues, Provenance, SetState
from tasks.domain.slo import Slo
from tasks.domain.study import StudyResult
from tasks.domain.study_request import StudyRequest
from tasks.domain.trial import Trial


def study_product(
    request: StudyRequest,
    result: StudyResult,
    *,
    measured_on: str,
    expires_on: str | None = None,
    run_ids: tuple[str, ...] = (),
    model_values: ParameterValues | None = None,
    cpu_kv_cache_gib: float | None = None,
) -> ParameterSet:
    """Return the set to publish.

    PROMOTE gives the winner's values as a candidate; every other outcome gives vLLM's defaults as
    a baseline, which claims nothing and does not expire. A baseline carries what the study
    measured of just these defaults, where it did. measured_on, expires_on: dates as YYYY-MM-DD.
    model_values: what every engine of the model is started with, whatever the set says.
    """
    decision = result.decision
    winner = _trial(result, decision.winner)
    promoted = decision.outcome is DecisionOutcome.PROMOTE and winner is not None
    values = winner.arm.values if promoted and winner is not None else ParameterValues()
    shown = winner if promoted else _defaults_trial(request, result)
    around = request.surroundings
    provenance = Provenance(
        study=request.name,
        study_id=request.study_id,
        mlflow_run_ids=run_ids,
        trace_sha256=request.trace_sha256,
        trace_part=request.trace_part or None,
        checkpoint_sha256=None if shown is None else _checkpoint_sha256(shown),
        engine=around.engine,
        flavour=around.flavour,
        hardware=around.hardware,
        device_count=around.device_count,
        driver=around.driver,
        engine_values=(model_values or ParameterValues()).overriding(values.as_dict()),
        cpu_kv_cache_gib=cpu_kv_cache_gib if around.flavour == "cpu" else None,
        measured_on=measured_on,
        expires_on=expires_on if promoted else None,
        slo=_slo_limits(request.slo),
        slo_values=() if shown is None else _slo_values(shown),
        synthetic=request.synthetic,
    )
    if promoted and winner is not None:
        synthetic = winner.checkpoint is not None and winner.checkpoint.synthetic
        return ParameterSet(
            name=request.regime.value,
            regime=request.regime,
            state=SetState.CANDIDATE,
            model=request.model,
            checkpoint=winner.arm.method,
            values=values,
            provenance=provenance,
            note="candidate, synthetic: dummy weights, no accuracy" if synthetic else "candidate",
        )
    reasons = "; ".join(reason.sentence for reason in decision.reasons if reason.passed is not True)
    return ParameterSet(
        name=request.regime.value,
        regime=request.regime,
        state=SetState.BASELINE,
        model=request.model,
        checkpoint="reference",
        values=values,
        provenance=provenance,
        note=f"vLLM's own defaults; the study ended {decision.outcome.value}: {reasons}",
    )


def same_but_dates(one: ParameterSet, other: ParameterSet) -> bool:
    """Tell whether two sets say the same of the same measurements, on whatever day."""
    return _undated(one) == _undated(other)


def _undated(parameter_set: ParameterSet) -> ParameterSet:
    origin = replace(parameter_set.provenance, measured_on=None, expires_on=None)
    return replace(parameter_set, provenance=origin)


def _trial(result: StudyResult, name: str | None) -> Trial | None:
    return next((trial for trial in result.trials if trial.arm.name == name), None)


def _defaults_trial(request: StudyRequest, result: StudyResult) -> Trial | None:
    """Return the reference's trial where it ran the reference checkpoint on vLLM's defaults."""
    arm = request.reference
    if arm.method != "reference" or arm.values.items:
        return None
    return _trial(result, arm.name)


def _checkpoint_sha256(trial: Trial) -> str | None:
    return None if trial.checkpoint is None else trial.checkpoint.sha256


def _slo_limits(slo: Slo) -> tuple[tuple[str, float], ...]:
    limits = {
        "attainment_frac": slo.attainment_frac,
        "e2e_s": slo.e2e_s,
        "tpot_s": slo.tpot_s,
        "ttft_s": slo.ttft_s,
    }
    return tuple((name, limit) for name, limit in limits.items() if limit is not None)


def _slo_values(trial: Trial) -> tuple[tuple[str, float], ...]:
    """Return what the trial gave at the regime's rate, sorted by name.

    A percentile that so few requests do not cover is left out.
    """
    if not trial.at_regime_rate:
        return ()
    m = trial.at_regime_rate[0]
    found: dict[str, float | None] = {
        "attainment_frac": m.attainment_frac,
        "goodput_req_s": m.goodput_req_s,
        "offered_req_s": m.offered_req_s,
    }
    for name, latency in (("ttft", m.ttft), ("tpot", m.tpot), ("e2e", m.e2e)):
        for label, quantile in (("p50", 0.5), ("p99", 0.99)):
            found[f"{name}_{label}_s"] = latency.p(quantile).value_s
    return tuple((name, value) for name, value in sorted(found.items()) if value is not None)
