"""The parameter set that a study's decision leaves: never more than was shown."""

from tasks.domain.decision import DecisionOutcome
from tasks.domain.parameters import ParameterSet, ParameterValues, Provenance, SetState
from tasks.domain.study import StudyResult
from tasks.domain.study_request import StudyRequest
from tasks.domain.trial import Trial


def study_product(
    request: StudyRequest,
    result: StudyResult,
    *,
    measured_on: str,
    run_ids: tuple[str, ...] = (),
    expires_on: str | None = None,
) -> ParameterSet:
    """Return the set to publish.

    PROMOTE gives the winner's values as a candidate; every other outcome gives vLLM's defaults as
    a baseline, which claims nothing. measured_on, expires_on: dates as YYYY-MM-DD.
    """
    decision = result.decision
    winner = _trial(result, decision.winner)
    promoted = decision.outcome is DecisionOutcome.PROMOTE and winner is not None
    provenance = Provenance(
        study_id=request.study_id,
        mlflow_run_ids=run_ids,
        trace_sha256=request.trace_sha256,
        engine=request.surroundings.engine,
        hardware=request.surroundings.hardware,
        measured_on=measured_on,
        expires_on=expires_on if promoted else None,
        slo_values=_slo_values(winner) if promoted else (),
    )
    reasons = "; ".join(reason.sentence for reason in decision.reasons if reason.passed is not True)
    if promoted and winner is not None:
        synthetic = winner.checkpoint is not None and winner.checkpoint.synthetic
        return ParameterSet(
            name=request.regime.value,
            regime=request.regime,
            state=SetState.CANDIDATE,
            model=request.model,
            checkpoint=winner.arm.method,
            values=winner.arm.values,
            provenance=provenance,
            note="candidate, synthetic: dummy weights, no accuracy" if synthetic else "candidate",
        )
    return ParameterSet(
        name=request.regime.value,
        regime=request.regime,
        state=SetState.BASELINE,
        model=request.model,
        checkpoint="reference",
        values=ParameterValues(),
        provenance=provenance,
        note=f"vLLM's own defaults; the study ended {decision.outcome.value}: {reasons}",
    )


def _trial(result: StudyResult, name: str | None) -> Trial | None:
    return next((trial for trial in result.trials if trial.arm.name == name), None)


def _slo_values(trial: Trial | None) -> tuple[tuple[str, float], ...]:
    """Return what the winner gave at the regime's rate, for the SLO's quantities."""
    if trial is None or not trial.at_regime_rate:
        return ()
    m = trial.at_regime_rate[0]
    found = {
        "attainment_frac": m.attainment_frac,
        "goodput_req_s": m.goodput_req_s,
        "ttft_p99_s": m.ttft.p(0.99).value_s,
        "tpot_p99_s": m.tpot.p(0.99).value_s,
    }
    return tuple((name, value) for name, value in found.items() if value is not None)
