"""Carries out a study's steps from a script: no Prefect, no MLflow, no engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from tasks.domain.accuracy import report_accuracy
from tasks.domain.accuracy_run import AccuracyRun, Protocol
from tasks.domain.endpoint import Checkpoint, Endpoint
from tasks.domain.engine_session import recallable
from tasks.domain.kernel_table import MissingTable
from tasks.domain.load_point import LoadKind
from tasks.domain.parameters import ParameterValues, Regime
from tasks.domain.steps import (
    CheckpointReady,
    Deploy,
    Deployed,
    Done,
    Evaluate,
    Evaluated,
    Failed,
    Measure,
    Measured,
    Outcome,
    PrepareCheckpoint,
    ProbeText,
    ProfileArm,
    Profiled,
    Step,
    Stop,
    TextProbed,
    TrialStatus,
    WarmUp,
)
from tasks.domain.study_request import (
    Arm,
    EvaluationPlan,
    LoadPlan,
    QuantizationPlan,
    StudyRequest,
    Surroundings,
)
from tasks.domain.validity import Flag
from tests.fakes.measurements import CHAT_SLO, measured

PROTOCOL = Protocol(
    task="everyday",
    task_version="1",
    n_shot=0,
    add_bos=False,
    chat_template_sha256=None,
    tokenizer_sha256="t",
    items_sha256="i",
    sampling="greedy",
    endpoint_kind="completions",
    item_limit=100,
    concurrency=1,
    harness="lm-eval",
)


def study_request(
    *arms: Arm, duration_s: float = 180.0, repeats: int = 2, curve_points: int = 0
) -> StudyRequest:
    return StudyRequest(
        name="unit",
        model="tiny",
        model_sha256="m",
        regime=Regime.PEAK,
        slo=CHAT_SLO,
        traffic_name="drawn",
        trace_sha256="t",
        arms=arms or two_arms(),
        load=LoadPlan(
            rate_scales=(1.0, 0.5),
            duration_s=duration_s,
            regime_repeats=repeats,
            curve_points=curve_points,
        ),
        evaluation=EvaluationPlan(task="everyday", items=100, margin_frac=0.01),
        quantization=QuantizationPlan(),
        profile_s=1.0,
        min_gain_frac=0.05,
        seed=1,
        surroundings=Surroundings(
            hardware="H200", device_count=1, driver="d", engine="0.24.0", flavour="cuda", client="1"
        ),
    )


def two_arms() -> tuple[Arm, ...]:
    return (
        Arm(name="awq", method="awq", values=ParameterValues()),
        Arm(name="reference", method="reference", values=ParameterValues(), is_reference=True),
    )


def tuned_arm(name: str = "tuned", **values: int) -> Arm:
    return Arm(name=name, method="reference", values=ParameterValues.of(values))


def accuracy(sha256: str, *, right: int, n: int = 100) -> Evaluated:
    scores = tuple((0.0, -1.0, -2.0, -3.0) for _ in range(n))
    run = AccuracyRun(
        item_ids=tuple(f"q{i}" for i in range(n)),
        item_correct=tuple(i < right for i in range(n)),
        choice_scores=scores,
        n_choices=4,
        protocol=PROTOCOL,
        seconds=1.0,
    )
    return Evaluated(report=report_accuracy(run, checkpoint_sha256=sha256))


@dataclass(slots=True)
class Script:
    """Answers steps. ``good`` gives (good, bad) requests a measurement by arm; ``fails`` a step's
    failure by (arm, kind of step), used up one by one; ``serve_as`` how AWQ is served; ``spoilt``
    codes of flags that make the next measurements of a load point INVALID; ``live_good`` (good,
    bad) by the running cap that a live engine was moved to; ``keeps_up_to`` the largest multiple
    of the rate that a probe of the sustainable rate keeps the SLO at.
    """

    good: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fails: dict[tuple[str, type], list[Failed]] = field(default_factory=dict)
    right: Mapping[str, int] = field(default_factory=dict)
    serve_as: str = "packed"
    degenerate_frac: float = 0.0
    spoilt: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    live_good: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    keeps_up_to: float = 1.0
    steps: list[Step] = field(default_factory=list)
    stored: dict[str, Outcome] = field(default_factory=dict)
    engines: int = 0
    before: Callable[[Step], None] = lambda step: None

    def carry_out(self, step: Step) -> Outcome:
        self.before(step)
        self.steps.append(step)
        outcome = self._outcome(step)
        if step.key is not None and recallable(outcome) and not isinstance(step, PrepareCheckpoint):
            self.stored[step.key] = outcome
        return outcome

    def _outcome(self, step: Step) -> Outcome:
        queued = self.fails.get((step.arm, type(step)))
        if queued:
            return queued.pop(0)
        match step:
            case PrepareCheckpoint():
                return CheckpointReady(checkpoint=self._checkpoint(step.method))
            case Deploy():
                assert self.engines == 0, "two engines at once"
                self.engines = 1
                endpoint = Endpoint(url="http://127.0.0.1:1", model=step.arm, owned=True)
                return Deployed(endpoint=endpoint, startup_s=60.0, facts=(("dtype", "bf16"),))
            case WarmUp():
                return Done()
            case Stop():
                self.engines = 0
                return Done()
            case ProbeText():
                return TextProbed(degenerate_frac=self.degenerate_frac, n=20)
            case Measure():
                good, bad = self.good.get(step.arm, (180, 0))
                if step.point.kind is LoadKind.CLOSED:
                    good, bad = 400, 0
                if step.live is not None:
                    good, bad = self.live_good[cast(int, step.live.get("max_num_seqs"))]
                if step.stop_when_diverged:
                    keeps = cast(float, step.point.rate_scale) <= self.keeps_up_to
                    good, bad = (400, 0) if keeps else (200, 200)
                keep = step.keep_requests
                return self._spoil(measured(step.point, good=good, bad=bad, keep_requests=keep))
            case Evaluate():
                return accuracy(step.checkpoint_sha256, right=self.right.get(step.arm, 80))
            case ProfileArm():
                missing = MissingTable(code="PROFILER_NOT_ENABLED", reason="scripted")
                return Profiled(kernels=None, missing=missing)

    def _spoil(self, outcome: Measured) -> Measured:
        queued = self.spoilt.get(outcome.measurement.load_point.name)
        codes = queued.pop(0) if queued else ()
        flags = [Flag(code=code, sentence="scripted", invalid=True) for code in codes]
        return replace(outcome, measurement=outcome.measurement.with_flags(*flags))

    def _checkpoint(self, method: str) -> Checkpoint:
        served = "reference" if method == "reference" else self.serve_as
        return Checkpoint(
            model="tiny", method=method, sha256=f"sha-{method}", serve_as=served, dtype="bfloat16"
        )


def died(*, transient: bool = True) -> Failed:
    return Failed(
        code="ENGINE_DIED", message="gone", status=TrialStatus.FAILED, transient=transient
    )


def infeasible() -> Failed:
    return Failed(code="KV_CACHE_TOO_SMALL", message="needs 4.5 GiB", status=TrialStatus.INFEASIBLE)
