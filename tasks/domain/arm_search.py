"""The search of one arm's live knobs: one engine, moved from point to point without a restart.

Yields Steps and is sent Outcomes, like every part of a study. The policy is told what each point
gave; a killed search goes on where it stopped, since every outcome is recalled by its key.
"""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tasks.domain.engine_session import EngineSession
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.measurement import Measurement
from tasks.domain.measurement_diagnosis import diagnose_measurement
from tasks.domain.parameters import ParameterValues
from tasks.domain.search.calibration import Calibrations
from tasks.domain.search.objective import Objective
from tasks.domain.search.observation import Observation, observe_rows, rows_of_table
from tasks.domain.search.protocol import Policy, PriorUse, Proposal
from tasks.domain.search.rate_forecast import forecast_multiple
from tasks.domain.search.space import KNOBS, Point, SearchSpace
from tasks.domain.search_found import ProbedPoint, SearchReport
from tasks.domain.search_rates import point_rate
from tasks.domain.steps import (
    CheckpointReady,
    Failed,
    Measure,
    Measured,
    Outcome,
    Step,
    TrialStatus,
    checkpoint_step,
    failure_in,
    step_key,
)
from tasks.domain.study_request import Arm, SearchPlan, StudyRequest

SEARCH_TRAFFIC = "search"
PROBE_STEP_S = 5.0
PROBE_TAILS = 3.0
LONGEST_PROBE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """What a search needs besides the request: a fresh policy, its space and its objective.

    envelope: the values that the engine is started with; no point may exceed them.
    """

    policy: Policy
    space: SearchSpace
    objective: Objective
    envelope: ParameterValues


Searching = Generator[Step, Outcome, SearchReport]


@dataclass(slots=True, kw_only=True)
class ArmSearch:
    """The search of one arm that the study marks as searched."""

    request: StudyRequest
    arm: Arm
    plan: SearchPlan
    searcher: Searcher
    recall: Mapping[str, Outcome]
    probes: list[ProbedPoint] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    probe_s: float = field(init=False)
    load_s: float = 0.0
    measured: dict[Point, Measurement] = field(default_factory=dict)
    stopped: SearchReport | None = None

    def __post_init__(self) -> None:
        """Begin with the plan's seconds of load a point."""
        self.probe_s = self.plan.probe_s

    def run(self) -> Searching:
        """Ask, move, measure and tell until the policy stops; the engine is stopped at the end."""
        request = self.request
        ready = yield checkpoint_step(request, self.arm)
        if not isinstance(ready, CheckpointReady):
            return self._report("FAILED", "the checkpoint is not ready", failure=failure_in(ready))
        key = step_key(
            request.measured_part,
            ready.checkpoint,
            self.searcher.envelope,
            self.plan.trace,
            "search",
        )
        session = EngineSession(
            arm=self.arm.name,
            checkpoint=ready.checkpoint,
            values=self.searcher.envelope,
            deploy_key=key,
            warmup_requests=request.load.warmup_requests,
            recall=self.recall,
            live=True,
        )
        self.stopped = yield from self._ask_until_stop(session, key)
        yield from self._add_rates(session, key)
        yield from session.close()
        return self.stopped

    def so_far(self) -> SearchReport:
        """Return the report of what has been found; the search may go on."""
        return self.stopped or self._report("RUNNING", "the search has not ended")

    def _ask_until_stop(self, session: EngineSession, key: str) -> Searching:
        policy = self.searcher.policy
        while isinstance(answer := policy.ask(), Proposal):
            step = self._step(answer.point, key)
            outcome = yield from self._measured(session, step)
            if not self.observations and self._lengthen(outcome):
                step = self._step(answer.point, key)
                outcome = yield from self._measured(session, step)
            observation = self._observation(answer.point, outcome)
            policy.tell(observation)
            self.observations.append(observation)
            if isinstance(outcome, Measured):
                self.measured[answer.point] = outcome.measurement
            self.probes.append(self._probed(answer, observation, step.key, outcome))
            if isinstance(outcome, Failed) and outcome.status is not TrialStatus.INFEASIBLE:
                return self._report(outcome.code, outcome.message, failure=outcome)
        return self._report(answer.code, answer.reason, priors=answer.priors)

    def _add_rates(self, session: EngineSession, key: str) -> Generator[Step, Outcome, None]:
        """Add the sustainable rates that the plan asks for; a point whose probe fails ends them."""
        plan, best = self.plan.sustainable, self.searcher.objective.best(self.observations)
        report = self.stopped
        if plan is None or best is None or report is None or report.failure is not None:
            return
        fitted = tuple(seen for seen in self.observations if seen.rows is not None)
        memory = Calibrations(kv_tokens=self.searcher.space.kv_tokens)
        for point in dict.fromkeys((self.searcher.space.reference, best.point)):
            rate = yield from point_rate(
                session,
                replace(plan, probe_s=self.probe_s),
                point,
                traffic=SEARCH_TRAFFIC,
                measured=self.measured.get(point),
                forecast=forecast_multiple(
                    fitted, point, slo=self.request.slo, calibrations=memory
                ),
                key_of=partial(self._rate_key, key, point),
            )
            report = self.stopped = replace(report, rates=(*report.rates, rate))
            if rate.rate is None:
                return

    def _rate_key(self, key: str, point: Point, load: LoadPoint) -> str:
        return step_key(key, "sustainable", load, point.values, self.request.slo)

    def _measured(self, session: EngineSession, step: Measure) -> Generator[Step, Outcome, Outcome]:
        outcome = yield from session.measurement_of(step)
        if isinstance(outcome, Measured) and outcome.requests is not None:
            self.load_s += outcome.requests.span_s
        return outcome

    def _step(self, point: Point, key: str) -> Measure:
        load = LoadPoint(kind=LoadKind.OPEN, rate_scale=1.0, duration_s=self.probe_s)
        return Measure(
            key=step_key(key, load, point.values, self.request.slo),
            arm=self.arm.name,
            point=load,
            traffic=SEARCH_TRAFFIC,
            live=point.values,
            keep_requests=True,
        )

    def _lengthen(self, outcome: Outcome) -> bool:
        """Make every probe at least three E2E tails long; return True where that is longer.

        Seen on an H200: in 14 s a cap of 64 kept the SLO for 99 % of the requests, in 90 s for
        82 %, since its queue had no time to grow; requests took up to 14 s.
        """
        tail = outcome.measurement.e2e_tail_s if isinstance(outcome, Measured) else None
        if tail is None:
            return False
        needed = PROBE_STEP_S * math.ceil(PROBE_TAILS * tail / PROBE_STEP_S)
        longer = min(needed, LONGEST_PROBE_S)
        if longer <= self.probe_s:
            return False
        self.probe_s = longer
        return True

    def _observation(self, point: Point, outcome: Outcome) -> Observation:
        if not isinstance(outcome, Measured) or outcome.requests is None:
            failed = failure_in(outcome)
            return Observation(point=point, status=failed.status, gpu_s=0.0, note=failed.message)
        seen = observe_rows(
            point,
            rows_of_table(outcome.requests),
            slo=self.request.slo,
            gpu_s=outcome.requests.span_s,
        )
        window = outcome.profile.window
        found = diagnose_measurement(outcome.measurement, outcome.profile, point.values)
        flags = [flag.sentence for flag in outcome.measurement.flags if flag.invalid]
        return replace(
            seen,
            status=TrialStatus.INVALID if flags else TrialStatus.COMPLETE,
            waiting_mean=None if window is None else window.waiting_mean,
            running_max=None if window is None else window.running_max,
            kv_peak_frac=None if window is None else window.kv_usage_max_frac,
            diagnosis=tuple(finding.rule_id for finding in found.first_reading),
            note="; ".join(flags),
        )

    def _probed(
        self, asked: Proposal, seen: Observation, key: str, outcome: Outcome
    ) -> ProbedPoint:
        return ProbedPoint(
            values=asked.point.values,
            status=seen.status,
            reason=asked.reason,
            priors=asked.priors,
            key=key,
            n=outcome.measurement.n_requests if isinstance(outcome, Measured) else None,
            attainment_frac=None if seen.shares is None else seen.shares.attainment_frac,
            worth=self.searcher.objective.worth(seen),
            forecast=None if asked.forecast is None else asked.forecast.mean,
        )

    def _report(
        self,
        code: str,
        reason: str,
        *,
        priors: tuple[PriorUse, ...] = (),
        failure: Failed | None = None,
    ) -> SearchReport:
        best = self.searcher.objective.best(self.observations)
        reference = self.searcher.space.reference
        improved = best is not None and best.point != reference
        return SearchReport(
            arm=self.arm.name,
            policy=self.plan.policy,
            probes=tuple(self.probes),
            found=_overrides(self.arm.values, best.point, reference)
            if improved and best is not None
            else self.arm.values,
            improved=improved,
            load_s=self.load_s,
            probe_s=self.probe_s,
            stop_code=code,
            stop_reason=reason,
            priors=priors,
            failure=failure if best is None else None,
        )


def _overrides(own: ParameterValues, best: Point, reference: Point) -> ParameterValues:
    """Return the arm's values with the knobs that differ from the reference point's."""
    asked, unasked = best.values.as_dict(), reference.values.as_dict()
    return own.overriding({n: asked[n] for n in KNOBS if asked[n] != unasked[n]})
