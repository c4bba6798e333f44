"""The engine of one run and what is done on it: deploy, warm up, measure, evaluate, profile.

Owns at most one engine at a time; an attached endpoint takes its place and is never stopped.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.bench_lines import fact_pairs, measured_line
from flows.engine_notes import keep_engine_notes
from flows.engine_warm_up import fill_to_limit, warm_rounds
from flows.materials import Materials
from flows.progress import Reporter
from tasks import benchmark, deploy, evaluate, profiling, quantize
from tasks.adapters.vllm_server.running import RunningEngine
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EngineDiedError, InfeasibleError, MeasurementInvalidError
from tasks.domain.kernel_table import MissingTable
from tasks.domain.live_values import LIVE_NAMES
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.parameters import ParameterValues
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import RequestSchedule
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

PROFILE_LOAD_S = 8.0
SHAPES = LoadPoint(kind=LoadKind.CLOSED, concurrency=1, duration_s=1.0)
BURST = LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=1.0)


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
    _values: ParameterValues = field(default_factory=ParameterValues)
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
            live=step.live,
        )
        self._values = step.values
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
        deployed = Deployed(
            endpoint=self._engine.endpoint,
            startup_s=facts.startup_s,
            facts=(*fact_pairs(facts), ("evidence", str(workdir.relative_to(self.folder)))),
        )
        if not step.live:
            keep_engine_notes(self._trial_folder(step.arm), deployed)
        return deployed

    def warm_up(self, step: WarmUp) -> Outcome:
        """Fill our own engine to its max_num_seqs once, then send rounds until they take alike.

        An engine may run out of memory after a good start: one that does so here never counts.
        """
        regime = self.materials.request.load.open_points()[0]
        if self.attached is None:
            at_once = self.materials.max_num_seqs(self._values)
            self.reporter.line(
                f"warm-up: {at_once} requests at once, the engine's own max_num_seqs"
            )
            fill_to_limit(self._schedule(SHAPES), at_once, lambda s: self._offer(s, "stress"))
        warm_rounds(self._schedule(regime), step.requests, lambda s: self._offer(s, "warm-up"))
        return Done()

    def probe_text(self, step: ProbeText) -> Outcome:
        """Look at the text of the fixed sanity prompts."""
        probe = evaluate.probe_text(self._endpoint(), self.materials.evaluation)
        self._served += probe.n
        return TextProbed(degenerate_frac=probe.degenerate_frac, n=probe.n)

    def measure(self, step: Measure) -> Outcome:
        """Measure one load point, live knobs moved first; its raw rows lie under the step's key."""
        if step.live is not None:
            self._move(step.live)
        measurement, profile, table = benchmark.measure_load(
            self._endpoint(),
            self._load(step.point, traffic=step.traffic, salt=step.key),
            slo=self.materials.request.slo,
            window_s=self.materials.request.load.window_s,
            evidence_dir=self._trial_folder(step.arm) / f"{step.point.name}-{step.key}",
            on_progress=lambda p: self.reporter.load(step.point.name, step.point.duration_s, p),
            requests_before=self._served,
            stop_when_diverged=step.stop_when_diverged,
        )
        self._served += measurement.n_requests
        timeouts = dict(measurement.errors).get("TIMEOUT", 0)
        self._raise_if_ended(
            failed=measurement.n_requests - measurement.n_ok,
            hung=measurement.n_ok == 0 and timeouts == measurement.n_requests,
        )
        measurement = measurement.with_flags(*self._identity_flags())
        self.reporter.line(measured_line(measurement))
        for flag in measurement.flags:
            if flag.invalid:
                self.reporter.line(f"benchmark {step.point.name}: INVALID, {flag.sentence}")
        requests = table if step.keep_requests else None
        return Measured(measurement=measurement, profile=profile, requests=requests)

    def _move(self, values: ParameterValues) -> None:
        knobs = ParameterValues.of({n: v for n, v in values.items if n in LIVE_NAMES})
        state = deploy.move_engine(self._endpoint(), knobs)
        told = ", ".join(f"{name}={value}" for name, value in state.in_force.items)
        self.reporter.line(f"live: the engine confirms {told}")

    def evaluate(self, step: Evaluate) -> Outcome:
        """Evaluate the served checkpoint's accuracy."""
        report = evaluate.evaluate_checkpoint(
            self._endpoint(),
            plan=step.plan,
            means=self.materials.evaluation,
            checkpoint_sha256=step.checkpoint_sha256,
            work_dir=self._trial_folder(step.arm) / f"evaluation-{step.key}",
        )
        self._raise_if_ended()
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
        self._raise_if_ended()
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

    def _schedule(self, point: LoadPoint) -> RequestSchedule:
        return self.materials.schedule(point, traffic="reference")

    def _offer(self, schedule: RequestSchedule, salt: str) -> None:
        """Offer a schedule that is not measured; raise where the engine ended or hangs."""
        load = replace(self._load(BURST, traffic="reference", salt=salt), schedule=schedule)
        records, _ = benchmark.offer_load(self._endpoint(), load)
        self._after_records(records)

    def _after_records(self, records: Sequence[RequestRecord]) -> None:
        self._served += len(records)
        failed = [record for record in records if not record.ok]
        silent = all(record.error_code == "TIMEOUT" for record in failed)
        self._raise_if_ended(
            failed=len(failed), hung=bool(records) and len(failed) == len(records) and silent
        )

    def _raise_if_ended(self, *, failed: int = 0, hung: bool = False) -> None:
        """Raise what the engine's log says if it ended under the last load, or if it hangs.

        The main process outlives its workers for a moment, so after failed requests it is waited
        for.
        """
        if self._engine is None:
            return
        failure = self._engine.dying_words() if failed else self._engine.failure()
        if failure is None:
            if hung:
                raise EngineDiedError(
                    f"the engine answers /health and moves no request: all {failed} timed out; it "
                    "is stopped and started once more",
                    code="ENGINE_HUNG",
                )
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
