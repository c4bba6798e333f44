"""Nights and release gates as tracking runs: one run each, beside the studies of the model."""

from tasks.domain.measurement_metrics import to_metrics
from tasks.domain.nightly import NightVerdict
from tasks.domain.release_gate import Gate, ReleaseVerdict
from tasks.domain.run_record import RunRecord
from tasks.domain.study_request import StudyRequest
from tasks.domain.study_runs import Pairs, request_params
from tasks.domain.trial import Trial


def night_runs(
    request: StudyRequest, verdict: NightVerdict, *, night: str, tags: Pairs = ()
) -> tuple[RunRecord, ...]:
    """Return the record of one regime's night, with every drift statistic as a metric."""
    metrics = _regime_metrics(verdict.trial)
    for finding in verdict.drift.findings:
        if finding.value is not None:
            metrics[f"drift/{finding.name}/{finding.statistic}"] = finding.value
    return (
        RunRecord(
            key=f"{request.name}-{night}",
            name=f"{request.name}-{night}",
            status="FINISHED",
            params=(*request_params(request), *_set_params(verdict.parameter_set, verdict.trial)),
            metrics=tuple(sorted(metrics.items())),
            tags=(
                *_common(request, "nightly"),
                *tags,
                ("verdict", verdict.outcome.value),
                ("drifted", str(verdict.drift.drifted).lower()),
                ("reasons", "; ".join(verdict.reasons)),
            ),
            artifacts=".",
        ),
    )


def release_runs(
    request: StudyRequest, verdict: ReleaseVerdict, *, occasion: str, tags: Pairs = ()
) -> tuple[RunRecord, ...]:
    """Return the record of a release gate; a no-go is a FINISHED run that says so."""
    reasons = "; ".join(f"{r.gate}: {r.sentence}" for r in verdict.reasons)
    return (
        RunRecord(
            key=f"{request.name}-{occasion}",
            name=f"{request.name}-{occasion}",
            status="FINISHED",
            params=(*request_params(request), *_set_params(verdict.parameter_set, verdict.trial)),
            metrics=tuple(sorted(_regime_metrics(verdict.trial).items())),
            tags=(
                *_common(request, "release"),
                *tags,
                ("verdict", verdict.answer.name),
                ("exit_code", str(int(verdict.answer))),
                ("reasons", reasons),
                ("gate", "go" if verdict.answer is Gate.GO else "closed"),
            ),
            artifacts=".",
        ),
    )


def _common(request: StudyRequest, phase: str) -> Pairs:
    return (
        ("study_id", request.study_id),
        ("regime", request.regime.value),
        ("phase", phase),
        ("vllm_version", request.surroundings.engine),
        ("gpu", request.surroundings.hardware),
    )


def _set_params(name: str, trial: Trial) -> Pairs:
    values = tuple((f"vllm/{key}", str(value)) for key, value in trial.arm.values.items)
    facts = tuple((f"engine/{key}", value) for key, value in trial.engine_facts)
    return (("set/name", name), ("quant/method", trial.arm.method), *values, *facts)


def _regime_metrics(trial: Trial) -> dict[str, float]:
    regime = trial.at_regime_rate
    return dict(to_metrics(regime[0])) if regime else {}
