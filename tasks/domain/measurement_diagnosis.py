"""Diagnoses one measured load point: the client's view of it beside the profile."""

from tasks.domain.diagnosis import Diagnosis, diagnose
from tasks.domain.diagnosis_facts import LatencyView
from tasks.domain.measurement import Measurement
from tasks.domain.parameters import ParameterValues
from tasks.domain.percentiles import Latency
from tasks.domain.profile import Profile
from tasks.domain.validity import LATE_CLIENT


def diagnose_measurement(
    measurement: Measurement, profile: Profile, values: ParameterValues
) -> Diagnosis:
    """Return what limits the load point; tails are p99, or p90 where p99 is not covered."""
    requests = measurement.n_ok
    cap = values.get("max_num_seqs")
    return diagnose(
        profile,
        latency=LatencyView(
            ttft_p99_s=_tail(measurement.ttft),
            tpot_p99_s=_tail(measurement.tpot),
            slo=measurement.slo,
            trace_reuse_frac=measurement.trace_reuse_frac,
            client_late=any(flag.code in LATE_CLIENT for flag in measurement.flags),
            prompt_tokens_mean=(
                measurement.input_tok_s * measurement.window_s / requests if requests else None
            ),
        ),
        max_num_seqs=cap if isinstance(cap, int) else None,
    )


def _tail(latency: Latency) -> float | None:
    p99 = latency.p(0.99).value_s
    return latency.p(0.9).value_s if p99 is None else p99
