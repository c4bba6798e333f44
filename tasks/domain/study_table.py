"""One line a trial, for the end of a run: what a person compares first."""

from tasks.domain.percentiles import Percentile
from tasks.domain.trial import Trial

TABLE_COLUMNS = (
    "arm",
    "status",
    "kernel",
    "goodput req/s",
    "inside SLO",
    "TTFT p50",
    "TPOT p50",
    "tokens/s",
    "accuracy",
    "bottleneck",
)


def trial_row(trial: Trial) -> tuple[str, ...]:
    """Return the cells of TABLE_COLUMNS; the regime's first measurement, each figure with its n."""
    regime = trial.at_regime_rate
    head = (
        trial.arm.name,
        trial.status.value,
        trial.checkpoint.kernel if trial.checkpoint else "-",
    )
    accuracy = "-"
    if trial.accuracy is not None:
        accuracy = f"{trial.accuracy.acc:.1%} (n={trial.accuracy.n})"
    bottleneck = (trial.diagnosis and trial.diagnosis.bottleneck) or "-"
    if not regime:
        return (*head, "-", "-", "-", "-", "-", accuracy, bottleneck)
    m = regime[0]
    return (
        *head,
        f"{m.goodput_req_s:.2f} of {m.offered_req_s:.2f}",
        f"{m.attainment_frac:.1%} (n={m.n_requests})",
        _cell(m.ttft.p(0.5)),
        _cell(m.tpot.p(0.5)),
        f"{m.output_tok_s:.1f}",
        accuracy,
        bottleneck,
    )


def _cell(p: Percentile) -> str:
    return f"- (n={p.n})" if p.value_s is None else f"{p.value_s:.2f} s (n={p.n})"
