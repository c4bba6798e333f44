"""The engine of one run and what is done on it: deploy, warm up, measure, evaluate, profile.

Owns at most one engine at a time; an attached endpoint takes its place and is never stopped.
"""

import time
import uuid
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from flows.materials import Materials
from flows.progress import Reporter
from tasks import benchmark, deploy, evaluate, profiling, quantize
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.endpoint import Endpoint
from tasks.domain.engine_facts import EngineFacts
from tasks.domain.errors import EngineDiedError, InfeasibleError, MeasurementInvalidError
from tasks.domain.kernel_table import MissingTable
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.steps import (
    CheckpointReady,
    Deploy,
    Deployed,
    Done,
    Evaluate,
    Evaluated,
    Measure,
    Measured,
    Outcome,
    PrepareCheckpoint,
    ProbeText,
    ProfileArm,
    Profiled,
    TextProbed,
    WarmUp,
)
from tasks.domain.validity import Flag

WARM_ROUNDS_AT_MOST = 4
WARM_ENOUGH_FRAC = 0.25
WARM_GAP_S = 0.5
PROFILE_LOAD_S = 8.0


@dataclass(slots=True, kw_only=True)
class EngineBench:
    """Carries out the steps that need a checkpoint or an engine.

    folder: the run's evidence folder. attached: somebody else's endpoint, or None.
    """

    materials: Materials
    folder: Path
    reporter: Reporter
    attached: Endpoint | None = None
    _engine: RunningEngine | None = field(default=None)
    _served: int = field(default=0)
    _profile_dir: Path | None = field(default=None)
    _checkpoint_dirs: dict[str, Path] = field(default_factory=dict)
    _attempts: int = field(default=0)
    _run_salt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def prepare_checkpoint(self, step: PrepareCheckpoint) -> Outcome:
        """Make the checkpoint ready and remember where it lies."""
        made = quantize.prepare_checkpoint(
            self.materials.prepared,
            method=step.method,
            plan=step.quantization,
            means=self.materials.quantizing,
            synthetic=self.materials.request.synthetic,
            on_progress=self.reporter.running,
        )
        self._checkpoint_dirs[made.checkpoint.sha256] = made.folder
        return CheckpointReady(checkpoint=made.checkpoint, seconds=made.seconds)

    def deploy(self, step: Deploy) -> Outcome:
        """Start the engine, or take the attached one as it is."""
        if self.attached is not None:
            return Deployed(endpoint=self.attached, startup_s=None)
        trial = f"{step.arm}-{uuid.uuid4().hex[:6]}"
        workdir = self._trial_folder(step.arm) / f"engine-{trial}"
        self._profile_dir = workdir / "torch-profile"
        launch = self.materials.launch(
            model_dir=self._checkpoint_dirs[step.checkpoint.sha256],
            served_name=f"{self.materials.request.model}-{trial}",
            values=step.values,
            profile_dir=self._profile_dir,
        )
        self._engine = deploy.deploy_engine(
            launch,
            workdir=workdir,
            lease_dir=self.materials.place.leases,
            on_phase=lambda phase: self.reporter.running(f"deploy: {phase.name}"),
        )
        self._served = 0
        facts = self._engine.facts
        self.reporter.line(
            f"deploy: ready after {facts.startup_s or 0:.0f} s, vLLM {facts.version}, "
            f"{facts.dtype}, KV cache {facts.kv_cache_tokens} tokens"
        )
        return Deployed(
            endpoint=self._engine.endpoint,
            startup_s=facts.startup_s,
            facts=(*fact_pairs(facts), ("evidence", str(workdir.relative_to(self.folder)))),
        )

    def warm_up(self, step: WarmUp) -> Outcome:
        """Send rounds of the traffic's own shapes until two rounds take about the same time."""
        previous: float | None = None
        for _ in range(WARM_ROUNDS_AT_MOST):
            seconds = self._warm_round(step.requests)
            if previous is not None and abs(seconds - previous) <= WARM_ENOUGH_FRAC * previous:
                break
            previous = seconds
        return Done()

    def probe_text(self, step: ProbeText) -> Outcome:
        """Look at the text of the fixed sanity prompts."""
        probe = evaluate.probe_text(self._endpoint(), self.materials.evaluation)
        self._served += probe.n
        return TextProbed(degenerate_frac=probe.degenerate_frac, n=probe.n)

    def measure(self, step: Measure) -> Outcome:
        """Measure one load point; its raw rows are kept under the step's key."""
        measurement, profile = benchmark.measure_load(
            self._endpoint(),
            self._load(step.point, traffic=step.traffic, salt=step.key),
            slo=self.materials.request.slo,
            window_s=self.materials.request.load.window_s,
            evidence_dir=self._trial_folder(step.arm) / f"{step.point.name}-{step.key}",
            on_progress=lambda p: self.reporter.load(step.point.name, step.point.duration_s, p),
            requests_before=self._served,
        )
        self._served += measurement.n_requests
        self._raise_if_dead()
        measurement = measurement.with_flags(*self._identity_flags())
        self.reporter.line(measured_line(measurement))
        return Measured(measurement=measurement, profile=profile)

    def evaluate(self, step: Evaluate) -> Outcome:
        """Evaluate the served checkpoint's accuracy."""
        report = evaluate.evaluate_checkpoint(
            self._endpoint(),
            plan=step.plan,
            means=self.materials.evaluation,
            checkpoint_sha256=step.checkpoint_sha256,
            work_dir=self._trial_folder(step.arm) / f"evaluation-{step.key}",
        )
        self._raise_if_dead()
        self.reporter.line(f"evaluate: {report.text}")
        return Evaluated(report=report)

    def profile(self, step: ProfileArm) -> Outcome:
        """Record a window of kernels under a short load of the regime's own."""
        if self._profile_dir is None:
            missing = MissingTable(
                code="NOT_OURS", reason="the engine is somebody else's: its traces are not here"
            )
            return Profiled(kernels=None, missing=missing)
        point = LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=PROFILE_LOAD_S)
        load = self._load(point, traffic="reference", salt=f"profile-{step.key}")
        endpoint = self._endpoint()
        table = profiling.kernel_window(
            endpoint,
            profiling.TraceWindow(
                seconds=step.seconds,
                trace_dir=self._profile_dir,
                load=lambda: benchmark.offer_load(endpoint, load),
            ),
        )
        self._raise_if_dead()
        if isinstance(table, MissingTable):
            return Profiled(kernels=None, missing=table)
        return Profiled(kernels=table, missing=None)

    def stop(self) -> None:
        """End our engine, if one runs; an attached endpoint stays as it is."""
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        report = deploy.stop_engine(engine)
        if not report.clean:
            self.reporter.line(f"stop: processes {report.survivors} of the engine did not end")

    def _trial_folder(self, arm: str) -> Path:
        return self.folder / "trials" / arm

    def _endpoint(self) -> Endpoint:
        if self.attached is not None:
            return self.attached
        if self._engine is None:
            raise EngineDiedError("no engine runs; a step that needs one came before its start")
        return self._engine.endpoint

    def _load(self, point: LoadPoint, *, traffic: str, salt: str) -> benchmark.Load:
        schedule = self.materials.schedule(point, traffic=traffic)
        self._attempts += 1
        return benchmark.Load(
            point=point,
            schedule=schedule,
            vocabulary=self.materials.vocabulary,
            salt=f"{salt}-{self._attempts}-{self._run_salt}",
        )

    def _warm_round(self, requests: int) -> float:
        regime = self.materials.request.load.open_points()[0]
        whole = self._load(regime, traffic="reference", salt="warm-up")
        spaced = tuple(
            replace(request, due_s=i * WARM_GAP_S)
            for i, request in enumerate(whole.schedule.requests[:requests])
        )
        schedule = replace(whole.schedule, requests=spaced, duration_s=requests * WARM_GAP_S)
        began = time.monotonic()
        records, _ = benchmark.offer_load(self._endpoint(), replace(whole, schedule=schedule))
        self._served += len(records)
        self._raise_if_dead()
        return time.monotonic() - began

    def _raise_if_dead(self) -> None:
        """Raise what the engine's log says if it ended under the last load."""
        failure = None if self._engine is None else self._engine.failure()
        if failure is None:
            return
        message = f"the engine ended under load: {failure.root_cause}; {failure.advice}"
        if failure.infeasible:
            raise InfeasibleError(message, code=failure.code)
        raise EngineDiedError(message, code=failure.code)

    def _identity_flags(self) -> tuple[Flag, ...]:
        if self._engine is None:
            return ()
        try:
            self._engine.verify_identity()
        except MeasurementInvalidError as error:
            return (Flag(code=error.code, sentence=str(error), invalid=True),)
        return ()


def fact_pairs(facts: EngineFacts) -> tuple[tuple[str, str], ...]:
    """Return what the engine's log told, as text; unknown facts are left out."""
    plain = {
        name: value
        for name, value in ((f.name, getattr(facts, f.name)) for f in fields(facts))
        if isinstance(value, str | int | float)
    }
    warnings = ",".join(sorted({warning.code for warning in facts.warnings}))
    pairs = [(name, str(value)) for name, value in plain.items()]
    return (*pairs, ("warnings", warnings)) if warnings else tuple(pairs)


def measured_line(m: Measurement) -> str:
    """Return one line on a measurement, every figure with its n."""
    flags = ", ".join(flag.code for flag in m.flags)
    return (
        f"benchmark {m.load_point.name}: goodput {m.goodput_req_s:.2f} of {m.offered_req_s:.2f} "
        f"req/s offered, {m.attainment_frac:.0%} inside the SLO (n={m.n_requests}), "
        f"TTFT {m.ttft.p(0.5).text}, {m.output_tok_s:.0f} tokens/s"
        + (f" [{flags}]" if flags else "")
    )
