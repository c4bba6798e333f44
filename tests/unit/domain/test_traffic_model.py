"""Drawn traffic has the rate, burstiness, lengths and reuse that its model states."""

import math

import numpy as np
import pytest

from tasks.domain.errors import TraceError
from tasks.domain.prefix_reuse import prefix_reuse_frac, reused_tokens
from tasks.domain.renewal import Segment, renewal_arrivals
from tasks.domain.trace import Trace, TraceNotes
from tasks.domain.trace_profile import profile_trace
from tasks.domain.traffic_model import (
    LengthDistribution,
    TrafficModel,
    draw_trace,
    lognormal_lengths,
)

FIXED = LengthDistribution(max_tokens=1000, histogram=((640, 1.0),))


def model(**changes: float) -> TrafficModel:
    values: dict[str, float] = {"rate_req_s": 5.0, "burstiness": 1.0, "prefix_reuse_frac": 0.0}
    values |= changes
    return TrafficModel(
        rate_req_s=values["rate_req_s"],
        burstiness=values["burstiness"],
        prefix_reuse_frac=values["prefix_reuse_frac"],
        prompt=FIXED,
        output=FIXED,
        source="a test",
    )


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 3.0])
def test_rate_and_burstiness_are_the_models(burstiness: float) -> None:
    profile = profile_trace(draw_trace(model(burstiness=burstiness), duration_s=20_000, seed=4))
    assert profile.mean_rate_req_s == pytest.approx(5.0, rel=0.03)
    assert profile.gap_cv == pytest.approx(burstiness, rel=0.03)


def test_the_same_seed_draws_the_same_trace_and_another_seed_another() -> None:
    one, same = (draw_trace(model(), duration_s=60, seed=4) for _ in range(2))
    other = draw_trace(model(), duration_s=60, seed=5)
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert one.sha256 == same.sha256 != other.sha256
    assert one.arrival_s[0] == 0.0


def test_prefix_reuse_is_the_share_asked_for() -> None:
    trace = draw_trace(model(prefix_reuse_frac=0.33), duration_s=2_000, seed=4)
    # 640-token prompts hold 10 blocks of 64: 3.3 blocks are shared on average.
    assert prefix_reuse_frac(trace) == pytest.approx(0.33, abs=0.01)
    assert prefix_reuse_frac(draw_trace(model(), duration_s=60, seed=4)) == 0.0


def test_a_lognormal_has_the_median_and_mean_given() -> None:
    lengths = lognormal_lengths(p50_tokens=1_000, mean_tokens=1_500, max_tokens=10**6)
    drawn = lengths.draw(200_000, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(1_000, rel=0.02)
    assert drawn.mean() == pytest.approx(1_500, rel=0.02)
    by_p90 = lognormal_lengths(p50_tokens=100, p90_tokens=300, max_tokens=10**6)
    drawn = by_p90.draw(200_000, np.random.default_rng(0))
    assert np.percentile(drawn, 90) == pytest.approx(300, rel=0.02)


def test_lengths_are_clipped_to_the_limits() -> None:
    lengths = lognormal_lengths(p50_tokens=100, mean_tokens=200, min_tokens=50, max_tokens=120)
    drawn = lengths.draw(1_000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (50, 120)


def test_a_histogram_draws_by_weight() -> None:
    lengths = LengthDistribution(max_tokens=100, histogram=((10, 3.0), (20, 1.0), (30, 0.0)))
    drawn = lengths.draw(10_000, np.random.default_rng(0))
    assert set(drawn.tolist()) == {10, 20}
    assert (drawn == 10).mean() == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize(
    ("mean", "p90"), [(None, None), (200.0, 300.0), (50.0, None), (None, 99.0)]
)
def test_a_lognormal_that_cannot_be_is_refused(mean: float | None, p90: float | None) -> None:
    with pytest.raises(TraceError, match="make no lognormal"):
        lognormal_lengths(p50_tokens=100, mean_tokens=mean, p90_tokens=p90, max_tokens=1000)


@pytest.mark.parametrize(
    "changes", [{"rate_req_s": 0.0}, {"burstiness": -1.0}, {"prefix_reuse_frac": 1.5}]
)
def test_a_model_that_cannot_be_is_refused_by_field(changes: dict[str, float]) -> None:
    with pytest.raises(TraceError, match=next(iter(changes))):
        draw_trace(model(**changes), duration_s=60, seed=1)


def test_a_model_without_lengths_is_refused() -> None:
    with pytest.raises(TraceError, match="neither histogram nor"):
        LengthDistribution(max_tokens=10).draw(1, np.random.default_rng(0))
    with pytest.raises(TraceError, match="leave no length"):
        LengthDistribution(max_tokens=0, histogram=((1, 1.0),)).draw(1, np.random.default_rng(0))


@pytest.mark.parametrize(("family", "shape"), [("gamma", 0.25), ("weibull", 0.5)])
def test_renewal_rates_follow_their_steps_from_the_first_second(family: str, shape: float) -> None:
    segments = tuple(
        Segment(start_s=s, end_s=s + 100, rate_req_s=r, family=family, shape=shape)
        for s, r in ((0.0, 2.0), (100.0, 20.0))
    )
    counts = np.zeros(2)
    for seed in range(300):
        arrivals = renewal_arrivals(segments, rng=np.random.default_rng(seed))
        assert (np.diff(arrivals) >= 0).all()
        counts += np.histogram(arrivals, bins=[0.0, 100.0, 200.0])[0]
    # Stationary from the start: 200 and 2000 expected; a start at an arrival would add (cv**2-1)/2.
    np.testing.assert_allclose(counts / 300, [200, 2000], rtol=0.03)


def test_an_unknown_gap_family_is_refused() -> None:
    bad = Segment(start_s=0, end_s=1, rate_req_s=1, family="cauchy", shape=1)
    with pytest.raises(TraceError, match="gamma or weibull"):
        renewal_arrivals((bad,), rng=np.random.default_rng(0))


def test_reuse_stops_at_the_first_miss_and_at_the_horizon() -> None:
    trace = Trace(
        arrival_s=np.array([0.0, 1.0, 2.0, 100.0]),
        prompt_tokens=np.array([300, 300, 250, 300]),
        output_tokens=np.ones(4, dtype=np.int64),
        source="made by hand",
        sha256="0" * 64,
        notes=TraceNotes(format="test", rows=4),
        prefix_blocks=((1, 2, 3), (1, 9, 3), (1, 2, 3), (1, 2, 3)),
        prefix_block_tokens=100,
    )
    reused = reused_tokens(trace)
    assert reused is not None
    # second: block 1, then a miss; third: all three blocks, but only 250 tokens long
    assert reused.tolist() == [0, 100, 250, 300]
    recent = reused_tokens(trace, horizon_s=10.0)
    assert recent is not None
    assert recent.tolist() == [0, 100, 250, 0]
    assert reused_tokens(trace, horizon_s=math.inf) is not None
