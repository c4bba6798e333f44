"""Percentiles carry their n and an interval, or say why they do not exist."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.percentiles import (
    design_effect,
    latency_of,
    percentile_of,
    samples_needed,
    wilson_interval,
)

seconds = st.floats(min_value=0.0, max_value=1e4, allow_nan=False)


def test_the_fewest_samples_are_those_that_the_binomial_rule_gives() -> None:
    # 0.5^6 x 2 = 0.031 <= 0.05 < 0.0625 = 0.5^5 x 2; 0.9^29 = 0.0471, 0.9^28 = 0.0523;
    # 0.99^299 = 0.04954, 0.99^298 = 0.05004.
    assert [samples_needed(q) for q in (0.5, 0.9, 0.99)] == [6, 29, 299]


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_one_sample_fewer_than_needed_gives_no_value_but_a_reason(quantile: float) -> None:
    n = samples_needed(quantile)
    enough = percentile_of([float(i) for i in range(n)], quantile)
    short = percentile_of([float(i) for i in range(n - 1)], quantile)
    assert enough.value_s is not None
    assert short.value_s is None
    assert short.reason is not None
    assert str(n) in short.reason
    assert short.n == n - 1


def test_the_median_of_nine_samples_lies_between_the_second_and_the_eighth() -> None:
    # Textbook: n = 9, p = 0.5: P(2 <= B <= 7) = 0.961, so the interval is [X(2), X(8)].
    found = percentile_of([9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0], 0.5)
    assert (found.value_s, found.low_s, found.high_s, found.n) == (5.0, 2.0, 8.0, 9)
    assert not found.upper_unbounded


def test_an_uncovered_tail_keeps_its_lower_bound_and_says_that_nothing_bounds_it_above() -> None:
    found = percentile_of([float(i) for i in range(1, 101)], 0.99)
    # n = 100: P(B <= 96) = 0.018 <= 0.025 < P(B <= 97), so X(97) = 97 is a lower bound.
    assert found.value_s is None
    assert found.low_s == 97.0
    assert found.high_s is None
    assert found.upper_unbounded
    assert "at least 97000.0 ms" in found.text
    assert "n=100" in found.text


def test_a_covered_percentile_prints_its_interval_and_its_n() -> None:
    text = percentile_of([0.1] * 400, 0.99).text
    assert text == "p99 100.0 ms (95 % 100.0-100.0 ms, n=400)"


def test_no_sample_gives_no_number_at_all() -> None:
    latency = latency_of("ttft", [])
    assert (latency.n, latency.mean_s, latency.max_s) == (0, None, None)
    assert all(p.value_s is None and p.low_s is None for p in latency.percentiles)
    assert latency.p(0.5).text == "p50 not known (n=0: no sample)"


def test_samples_that_are_not_finite_are_refused() -> None:
    with pytest.raises(MeasurementInvalidError, match="1 of 2"):
        percentile_of([1.0, math.nan], 0.5)


def test_a_percentile_that_was_not_computed_is_refused() -> None:
    with pytest.raises(MeasurementInvalidError, match=r"ttft has no percentile 0\.95"):
        latency_of("ttft", [1.0]).p(0.95)


@given(st.lists(seconds, min_size=1, max_size=400), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_value_lies_inside_its_interval_and_inside_the_sample(
    samples: list[float], quantile: float
) -> None:
    found = percentile_of(samples, quantile)
    if found.value_s is None:
        assert len(samples) < samples_needed(quantile)
        assert found.reason
    else:
        assert found.low_s is not None
        assert found.high_s is not None
        assert min(samples) <= found.low_s <= found.value_s <= found.high_s <= max(samples)


@given(st.lists(seconds, min_size=30, max_size=60), st.floats(min_value=0.01, max_value=100))
def test_scaling_the_samples_scales_the_percentile(samples: list[float], factor: float) -> None:
    one = percentile_of(samples, 0.9)
    scaled = percentile_of([factor * s for s in samples], 0.9)
    assert one.value_s is not None
    assert scaled.value_s == pytest.approx(factor * one.value_s)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_interval_of_the_p90_covers_the_true_one_as_often_as_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = -math.log(0.1)  # p90 of an exponential with mean 1
    runs = [percentile_of(rng.exponential(size=60), 0.9) for _ in range(400)]
    inside = sum(
        1 for r in runs if r.low_s is not None and r.high_s is not None
        and r.low_s <= truth <= r.high_s
    )  # fmt: skip
    assert inside >= 365  # 380 expected, 15 = 3.4 standard deviations


def test_equal_values_within_each_cluster_are_worth_one_sample_a_cluster() -> None:
    # 10 clusters of 50 equal gaps. Hits are all or nothing in each: share 0.5, residuals ±25,
    # variance 10/9 x 10 x 625 / 500^2 = 0.02778, against 0.25 / 500: effect 55.6.
    samples = np.repeat(np.arange(10.0), 50)
    clusters = np.repeat(np.arange(10), 50)
    assert design_effect(samples < 5, clusters) == pytest.approx(500 / 9)
    clustered = percentile_of(samples, 0.5, clusters=clusters)
    alone = percentile_of(samples, 0.5)
    assert clustered.n == alone.n == 500
    assert clustered.n_effective == 9
    assert clustered.low_s is not None
    assert alone.low_s is not None
    assert clustered.low_s < alone.low_s


def test_clusters_that_say_nothing_leave_the_samples_their_worth() -> None:
    hits = np.array([True, True, False, False])
    assert design_effect(hits, np.zeros(4, dtype=np.int64)) == 1.0
    assert design_effect(np.ones(4, dtype=bool), np.arange(4)) == 1.0
    assert design_effect(hits, np.array([0, 1, 0, 1])) == 1.0  # balanced: never below 1


def test_the_wilson_interval_is_the_textbook_one() -> None:
    # 8 of 10: (0.8 + 0.19207 ± 1.95996 sqrt(0.016 + 0.0096036)) / 1.384146 = 0.4902, 0.9433
    low, high = wilson_interval(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert wilson_interval(10, 10)[1] == 1.0
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(80, 100, n_effective=10.0) == pytest.approx((low, high))


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@given(st.integers(0, 200), st.integers(0, 200))
@example(0, 3)  # (z^2/2n - half) / scale is 5.6e-17 there
@settings(deadline=None)
def test_a_wilson_interval_encloses_its_share(confidence: float, hits: int, misses: int) -> None:
    n = max(1, hits + misses)
    low, high = wilson_interval(hits, n, confidence=confidence)
    assert 0.0 <= low <= hits / n <= high <= 1.0
