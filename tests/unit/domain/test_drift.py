"""Drift: fixed changes are found and named, the same traffic is not, intervals are by window."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.drift import DriftFinding, DriftReport, drift_report
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace
from tasks.domain.traffic_model import TrafficModel, draw_trace, lognormal_lengths


def traffic(
    seed: int,
    *,
    rate: float = 5.0,
    burstiness: float = 1.0,
    longer: float = 1.0,
    reuse: float = 0.4,
) -> Trace:
    model = TrafficModel(
        rate_req_s=rate,
        burstiness=burstiness,
        prompt=lognormal_lengths(
            p50_tokens=800 * longer, mean_tokens=1100 * longer, max_tokens=100_000
        ),
        output=lognormal_lengths(
            p50_tokens=150 * longer, mean_tokens=220 * longer, max_tokens=100_000
        ),
        prefix_reuse_frac=reuse,
        shared_prefixes=4,
        source="a test",
    )
    return draw_trace(model, duration_s=900.0, seed=seed)


def finding(report: DriftReport, name: str, statistic: str) -> DriftFinding:
    return next(f for f in report.findings if (f.name, f.statistic) == (name, statistic))


REFERENCE = traffic(1)


@pytest.mark.parametrize(
    ("fresh", "names"),
    [
        (traffic(2, rate=6.5), ("rate",)),
        (traffic(2, rate=5.0 / 1.3), ("rate",)),
        (traffic(2, longer=1.25), ("prompt_tokens", "output_tokens")),
        (traffic(2, burstiness=2.0), ("burstiness",)),
        (traffic(2, reuse=0.25), ("prefix_reuse",)),
    ],
)
def test_a_change_of_fixed_size_is_found_and_only_it_is_named(
    fresh: Trace, names: tuple[str, ...]
) -> None:
    report = drift_report(REFERENCE, fresh, seed=0)
    assert report.drifted
    assert report.drifted_names == names


@pytest.mark.parametrize("seed", range(2, 8))
def test_the_same_traffic_drawn_anew_does_not_drift(seed: int) -> None:
    assert drift_report(REFERENCE, traffic(seed), seed=0).drifted_names == ()


def test_a_change_of_a_twentieth_is_below_every_threshold() -> None:
    fresh = traffic(3, rate=5.25, longer=1.05)
    assert not drift_report(REFERENCE, fresh, seed=0).drifted


@settings(deadline=None, max_examples=25)
@given(
    gaps=st.lists(st.floats(min_value=0.0, max_value=500.0), min_size=1, max_size=200),
    tokens=st.integers(min_value=1, max_value=10**6),
)
def test_an_identical_trace_never_drifts(gaps: list[float], tokens: int) -> None:
    arrivals = np.cumsum([0.0, *gaps, 1.0])
    trace = replace(
        REFERENCE,
        arrival_s=arrivals,
        prompt_tokens=np.full(arrivals.size, tokens),
        output_tokens=np.arange(1, arrivals.size + 1),
        prefix_blocks=None,
    )
    report = drift_report(trace, trace, seed=0)
    assert not report.drifted
    assert all(f.value in (0.0, 1.0) for f in report.findings)


def test_a_mix_of_two_kinds_changes_the_mix() -> None:
    short, long = traffic(2), traffic(3, longer=6.0)
    pick = np.arange(len(short)) % 2 == 0
    rows = np.resize(long.prompt_tokens, len(short))
    fresh = replace(short, prompt_tokens=np.where(pick, rows, short.prompt_tokens))
    report = drift_report(REFERENCE, fresh, seed=0)
    assert {"prompt_tokens", "mix"} <= set(report.drifted_names)
    assert "output_tokens" not in report.drifted_names


def test_the_interval_holds_the_value_and_the_report_is_seeded() -> None:
    fresh = traffic(2, rate=6.5)
    one, same = (drift_report(REFERENCE, fresh, seed=3) for _ in range(2))
    assert one == same
    rate = finding(one, "rate", "busy_window_ratio")
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.value < rate.high
    assert rate.sentence.endswith("drifted")


def test_bursts_widen_the_interval_more_than_their_requests_would() -> None:
    calm = finding(drift_report(REFERENCE, traffic(2), seed=0), "rate", "busy_window_ratio")
    wild = drift_report(traffic(1, burstiness=6.0), traffic(2, burstiness=6.0), seed=0)
    bursty = finding(wild, "rate", "busy_window_ratio")
    assert None not in (calm.low, calm.high, bursty.low, bursty.high)
    widths = [(f.high or 0.0) - (f.low or 0.0) for f in (calm, bursty)]
    assert widths[1] > 2 * widths[0]


def test_too_few_windows_judge_nothing_and_say_so() -> None:
    short = replace(
        REFERENCE,
        arrival_s=REFERENCE.arrival_s[:100] / 2.0,  # about ten seconds
        prompt_tokens=REFERENCE.prompt_tokens[:100],
        output_tokens=REFERENCE.output_tokens[:100],
        prefix_blocks=None,
    )
    report = drift_report(short, replace(short, prompt_tokens=short.prompt_tokens * 9), seed=0)
    assert (report.judged, report.drifted) == (False, False)
    assert all(f.low is None and "not judged" in f.sentence for f in report.findings)


def test_prefix_reuse_is_compared_only_where_both_sides_know_it() -> None:
    report = drift_report(REFERENCE, replace(traffic(2), prefix_blocks=None), seed=0)
    assert "prefix_reuse" not in {f.name for f in report.findings}


def test_psi_and_wasserstein_have_their_hand_computed_values() -> None:
    # Reference lengths 100 and 200 in halves, fresh all 200: half of the mass moves 100 tokens.
    arrivals = np.arange(200, dtype=np.float64)
    half = np.tile([100, 200], 100)
    reference = replace(
        REFERENCE,
        arrival_s=arrivals,
        prompt_tokens=half,
        output_tokens=np.full(200, 9),
        prefix_blocks=None,
    )
    fresh = replace(reference, prompt_tokens=np.full(200, 200))
    report = drift_report(reference, fresh, seed=0, window_s=10.0)
    moved = finding(report, "prompt_tokens", "wasserstein_tokens")
    assert moved.value == pytest.approx(50.0)
    assert moved.threshold == pytest.approx(37.5)  # a quarter of the mean of 150
    # 190 requests in 19 whole windows; bins (<= 100, <= 200, above), half a request added each:
    # r = (95.5, 95.5, .5) / 191.5, f = (.5, 190.5, .5) / 191.5
    r, f = np.array([95.5, 95.5, 0.5]) / 191.5, np.array([0.5, 190.5, 0.5]) / 191.5
    psi = finding(report, "prompt_tokens", "psi")
    assert psi.value == pytest.approx(float(((f - r) * np.log(f / r)).sum()))


def test_a_trace_without_duration_is_refused() -> None:
    single = replace(
        REFERENCE,
        arrival_s=np.zeros(1),
        prompt_tokens=np.ones(1, dtype=np.int64),
        output_tokens=np.ones(1, dtype=np.int64),
        prefix_blocks=None,
    )
    with pytest.raises(TraceError, match="at least two"):
        drift_report(REFERENCE, single, seed=0)


def test_a_rate_change_that_could_not_be_seen_is_given_its_size() -> None:
    """On/off traffic hides x 1.3; the report says from which growth on it would not."""
    rng = np.random.default_rng(5)

    def on_off(factor: float) -> Trace:
        parts = [
            60.0 * minute + np.sort(rng.random(count)) * 60.0
            for minute, count in enumerate(rng.pareto(1.2, size=14) * 40 + 5)
            for count in (int(count),)
        ]
        arrival = np.concatenate(parts) / factor
        whole = traffic(1, rate=arrival.size / 800.0)
        rows = np.arange(min(arrival.size, len(whole)))
        return replace(
            whole,
            arrival_s=arrival[rows] - arrival[0],
            prompt_tokens=whole.prompt_tokens[rows],
            output_tokens=whole.output_tokens[rows],
            prefix_blocks=None,
        )

    found = finding(drift_report(on_off(1.0), on_off(1.3), seed=0), "rate", "busy_window_ratio")
    assert found.low is not None
    assert found.visible == pytest.approx(max(found.threshold, found.value / found.low))
    assert found.visible > 1.3
    if not found.drifted:
        assert f"show growth from x{found.visible:.2f} on" in found.sentence
    steady = finding(drift_report(REFERENCE, traffic(2), seed=0), "rate", "busy_window_ratio")
    assert steady.visible is not None
    assert steady.visible < 1.3


def test_only_ratios_have_a_smallest_visible_growth() -> None:
    report = drift_report(REFERENCE, traffic(2), seed=0)
    known = {f.statistic for f in report.findings if f.visible is not None}
    assert known == {"busy_window_ratio", "median_gap_cv_ratio", "mean_ratio"}
