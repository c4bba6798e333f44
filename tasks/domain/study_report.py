"""A study as a person reads it: the verdict first, then tables whose every figure has its n."""

from collections.abc import Sequence

from tasks.domain.kernel_table import KernelTable
from tasks.domain.load_point import LoadKind
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_metrics import FORMULAS
from tasks.domain.percentiles import Percentile
from tasks.domain.search_found import SearchReport
from tasks.domain.search_report import search_part
from tasks.domain.study import StudyResult
from tasks.domain.study_request import StudyRequest
from tasks.domain.sustainable_rate import rate_table
from tasks.domain.trial import Trial

KERNELS_SHOWN = 8


def verdict_lines(request: StudyRequest, result: StudyResult) -> tuple[str, ...]:
    """Return the short verdict: outcome, the gates that decided it, what would change it."""
    decision = result.decision
    head = f"{decision.outcome.value}: study {request.name} ({request.study_id})"
    if decision.winner is not None:
        head += f", winner {decision.winner}"
    marks = {True: "passed", False: "not passed", None: "not decided"}
    gates = [f"- {r.gate}: {marks[r.passed]}: {r.sentence}" for r in decision.reasons]
    change = [f"- what would change it: {text}" for text in decision.would_change]
    return (head, *gates, *change, *_emulated(result))


def study_report(request: StudyRequest, result: StudyResult) -> str:
    """Return the study's report in Markdown."""
    verdict = "\n".join(verdict_lines(request, result))
    return _report(request, verdict, result.searches, result.trials)


def unfinished_report(
    request: StudyRequest, searches: tuple[SearchReport, ...], trials: tuple[Trial, ...]
) -> str:
    """Return what a study that has not ended has found, in Markdown; it decides nothing."""
    verdict = (
        f"None yet: study {request.name} ({request.study_id}) has not ended. What follows was "
        "measured; the same command goes on from there."
    )
    return _report(request, verdict, searches, trials)


def _report(
    request: StudyRequest,
    verdict: str,
    searches: tuple[SearchReport, ...],
    trials: tuple[Trial, ...],
) -> str:
    around = request.surroundings
    parts = [
        f"# Study {request.name} ({request.study_id})",
        f"{request.model} on {around.device_count} x {around.hardware}, vLLM {around.engine} "
        f"({around.flavour}); regime {request.regime.value}, traffic {request.traffic_name} "
        f"(sha256 {request.trace_sha256[:12]}), seed {request.seed}.",
        "## Verdict",
        verdict,
        *(search_part(report) for report in searches),
        *(_trial_part(trial) for trial in trials),
        "## Formulas",
        "\n".join(f"- {name}: {formula}" for name, formula in FORMULAS.items()),
    ]
    return "\n\n".join(parts) + "\n"


def load_table(measurements: Sequence[Measurement]) -> str:
    """Return a Markdown table of load points, each latency with its interval and n."""
    head = (
        "| load | n | offered req/s | goodput req/s | inside SLO | output tokens/s "
        "| TTFT p50 | TTFT p99 | TPOT p50 | E2E p99 | flags |\n" + "|---|" + "---|" * 10
    )
    return "\n".join([head, *(_row(m) for m in measurements)])


def _row(m: Measurement) -> str:
    offered = f"{m.offered_req_s:.2f}" if m.load_point.kind is LoadKind.OPEN else "closed loop"
    inside = (
        f"{m.attainment_frac:.1%} ({m.attainment_low_frac:.1%} to {m.attainment_high_frac:.1%})"
    )
    cells = (
        m.load_point.name,
        f"{m.n_requests}",
        offered,
        f"{m.goodput_req_s:.2f}",
        inside,
        f"{m.output_tok_s:.1f}",
        _cell(m.ttft.p(0.5)),
        _cell(m.ttft.p(0.99)),
        _cell(m.tpot.p(0.5)),
        _cell(m.e2e.p(0.99)),
        ", ".join(flag.code for flag in m.flags) or "-",
    )
    return "| " + " | ".join(cells) + " |"


def _cell(p: Percentile) -> str:
    if p.value_s is None:
        bound = "" if p.low_s is None else f", at least {p.low_s:.2f} s"
        return f"not covered (n={p.n}{bound})"
    return f"{p.value_s:.2f} s (n={p.n})"


def _trial_part(trial: Trial) -> str:
    lines = [f"## Arm {trial.arm.name}: {trial.status.value}"]
    if trial.failure is not None:
        lines.append(f"{trial.failure.code}: {trial.failure.message}")
    if trial.checkpoint is not None:
        c = trial.checkpoint
        values = ", ".join(f"{k}={v}" for k, v in trial.arm.values.items) or "vLLM's defaults"
        lines.append(f"Checkpoint {c.method} served {c.serve_as} (kernel={c.kernel}); {values}.")
    measured = [keyed.measurement for keyed in trial.measurements]
    if measured:
        lines.append(load_table(measured))
    lines += [
        *_sustainable_lines(trial),
        *_curve_lines(trial),
        *_accuracy_lines(trial),
        *_diagnosis_lines(trial),
    ]
    return "\n\n".join(lines)


def _sustainable_lines(trial: Trial) -> list[str]:
    found = trial.sustainable
    if found is None:
        return []
    head = "Sustainable rate: none found"
    if found.multiple is not None and found.req_s is not None:
        head = f"Sustainable rate: {found.req_s:.2f} req/s, x{found.multiple:.3g} of the traffic's"
    return [f"{head} ({found.reason})", rate_table(found)]


def _curve_lines(trial: Trial) -> list[str]:
    if trial.curve is None:
        return []
    curve = trial.curve
    return [
        f"Concurrency curve (TTFT p{100 * curve.quantile:.0f}, the highest that every point "
        f"covers): {curve.inflection.reason}"
    ]


def _accuracy_lines(trial: Trial) -> list[str]:
    return [] if trial.accuracy is None else [f"Accuracy: {trial.accuracy.text}"]


def _diagnosis_lines(trial: Trial) -> list[str]:
    lines: list[str] = []
    if trial.diagnosis is not None:
        found = trial.diagnosis
        lines.append(f"Bottleneck: {found.bottleneck or 'no rule holds'}; {found.agreement}.")
        lines += [f"- {f.text} ({', '.join(f.seen)}; {f.source})" for f in found.first_reading]
        if found.try_next:
            lines.append("Try next: " + "; ".join(found.try_next) + ".")
    if trial.profile is not None and trial.profile.kernels is not None:
        lines.append(_kernels(trial.profile.kernels))
    elif trial.profile is not None and trial.profile.kernels_missing is not None:
        lines.append(f"No kernel table: {trial.profile.kernels_missing.reason}")
    return lines


def _kernels(table: KernelTable) -> str:
    rows = [
        f"| {row.name} | {row.calls} | {row.self_s:.3f} s | {row.share_frac:.1%} |"
        for row in table.rows[:KERNELS_SHOWN]
    ]
    return "\n".join(["| kernel | calls | self time | share |", "|---|---|---|---|", *rows])


def _emulated(result: StudyResult) -> tuple[str, ...]:
    names = [t.arm.name for t in result.trials if t.checkpoint and t.checkpoint.kernel != "native"]
    if not names:
        return ()
    return (
        f"- {', '.join(names)}: this device lacks the W4A16 kernel, so the checkpoint was served "
        "dequantized (kernel=emulated): its accuracy counts, its speed promotes nothing",
    )
