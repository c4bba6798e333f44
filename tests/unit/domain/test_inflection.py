"""The knee is where p99 suddenly spikes, and nowhere else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import InvalidParameterError
from tasks.domain.inflection import CurvePoint, inflection_point, next_concurrency

GUIDE = ((1, 0.025), (4, 0.030), (16, 0.050), (32, 0.180), (64, 1.200))
DOUBLINGS = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def curve(*points: tuple[int, float], spread: float | None = None) -> list[CurvePoint]:
    return [
        CurvePoint(
            concurrency=c,
            p99_s=p99,
            low_s=None if spread is None else p99 * (1 - spread),
            high_s=None if spread is None else p99 * (1 + spread),
            n=400,
        )
        for c, p99 in points
    ]


def test_the_guides_curve_has_its_knee_at_32_and_16_is_chosen() -> None:
    found = inflection_point(curve(*GUIDE))
    assert (found.knee, found.choose, found.low, found.high) == (32, 16, 16, 32)
    assert found.reason == (
        "p99 rises from 50 ms at 16 (n=400) to 180 ms at 32 (n=400): 3.6 times for 2 times the "
        "concurrency"
    )


def test_a_knee_at_the_last_point_is_said_to_be_unconfirmed() -> None:
    assert "no later point confirms it" in inflection_point(curve(*GUIDE[:4])).reason


@given(st.randoms(use_true_random=False))
def test_order_does_not_matter(rng: random.Random) -> None:
    points = curve(*GUIDE)
    rng.shuffle(points)
    assert inflection_point(points) == inflection_point(curve(*GUIDE))


@given(st.floats(min_value=1e-4, max_value=1e4), st.integers(min_value=1, max_value=50))
def test_the_unit_of_latency_and_of_concurrency_does_not_matter(unit: float, times: int) -> None:
    scaled = curve(*((c * times, p99 * unit) for c, p99 in GUIDE))
    found = inflection_point(scaled)
    assert (found.knee, found.choose) == (32 * times, 16 * times)


@given(
    st.floats(min_value=0.0, max_value=10.0),
    st.floats(min_value=1e-3, max_value=1.0),
    st.sets(st.integers(min_value=1, max_value=1000), min_size=2, max_size=12),
)
def test_linear_growth_has_no_knee(start: float, slope: float, at: set[int]) -> None:
    found = inflection_point(curve(*((c, start + slope * c) for c in at)))
    assert found.knee is None
    assert found.choose == max(at)
    assert found.reason == f"no knee found up to {max(at)}"


@given(st.lists(st.floats(min_value=0.8, max_value=1.2), min_size=9, max_size=9))
def test_a_flat_curve_with_twenty_percent_of_noise_has_no_knee(noise: list[float]) -> None:
    points = curve(*((c, 0.05 * e) for c, e in zip(DOUBLINGS, noise, strict=True)))
    assert inflection_point(points).knee is None


@given(
    st.lists(st.floats(min_value=0.9, max_value=1.1), min_size=9, max_size=9),
    st.integers(min_value=1, max_value=7),
)
def test_a_real_spike_is_found_through_ten_percent_of_noise(noise: list[float], at: int) -> None:
    levels = [0.05 if i < at else 0.05 * 4 ** (i - at + 1) for i in range(9)]
    points = curve(*((c, p * e) for c, p, e in zip(DOUBLINGS, levels, noise, strict=True)))
    found = inflection_point(points)
    assert (found.knee, found.choose) == (DOUBLINGS[at], DOUBLINGS[at - 1])


def test_one_outlier_that_later_points_do_not_confirm_is_no_knee() -> None:
    points = curve((1, 0.05), (2, 0.05), (4, 0.5), (8, 0.05), (16, 0.05))
    assert inflection_point(points).knee is None


def test_a_spike_inside_the_noise_of_its_points_is_not_claimed() -> None:
    found = inflection_point(curve((16, 0.05), (32, 0.18), spread=0.7))
    assert found.knee is None
    assert "cannot be told from 50 ms at 16 (n=400)" in found.reason
    assert inflection_point(curve((16, 0.05), (32, 0.18), spread=0.3)).knee == 32


def test_a_spike_spread_over_small_steps_is_still_found() -> None:
    points = curve((16, 0.050), (18, 0.065), (20, 0.085), (23, 0.115), (26, 0.140), (32, 0.180))
    found = inflection_point(points)
    # 20 over 16: 1.7 / 1.25 = 1.36, no spike yet; 23 over 16: 2.3 / 1.4375 = 1.6.
    assert (found.knee, found.choose) == (23, 16)


def test_repeats_of_one_concurrency_are_merged_by_their_samples() -> None:
    points = [*curve((1, 0.04), (1, 0.06), (16, 0.05)), *curve((32, 0.18))]
    assert inflection_point(points).choose == 16
    weighted = [
        CurvePoint(concurrency=1, p99_s=0.04, low_s=None, high_s=None, n=300),
        CurvePoint(concurrency=1, p99_s=0.08, low_s=None, high_s=None, n=100),
        CurvePoint(concurrency=2, p99_s=0.50, low_s=None, high_s=None, n=400),
    ]
    assert "50 ms at 1 (n=400)" in inflection_point(weighted).reason  # (3 x 40 + 80) / 4


def test_points_without_a_covered_p99_are_named_and_left_out() -> None:
    uncovered = CurvePoint(concurrency=64, p99_s=None, low_s=0.1, high_s=None, n=20)
    found = inflection_point([*curve((1, 0.05), (2, 0.05)), uncovered])
    assert found.choose == 2
    assert "p99 not covered at [64]" in found.reason
    assert inflection_point([uncovered]).choose is None
    assert inflection_point([]).knee is None


@pytest.mark.parametrize(("concurrency", "p99"), [(0, 0.1), (1, 0.0), (1, float("nan"))])
def test_points_that_cannot_be_are_refused(concurrency: int, p99: float) -> None:
    with pytest.raises(InvalidParameterError, match="leave failed points out"):
        inflection_point(curve((concurrency, p99)))


def walk(*, limit: int, knee: int) -> list[int]:
    """Measure what next_concurrency asks for on a curve that is flat up to ``knee``."""
    points: list[CurvePoint] = []
    while (at := next_concurrency(points, limit=limit)) is not None:
        assert at not in {p.concurrency for p in points}
        assert 1 <= at <= limit
        points += curve((at, 0.05 if at < knee else 0.05 * 3 * at / knee))
    return [p.concurrency for p in points]


def test_concurrency_doubles_then_halves_the_bracket_around_the_knee() -> None:
    # Doubles to 32 (first bad), then 23 = sqrt(16 x 32) is good, 27 = sqrt(23 x 32) bad;
    # 27 / 23 = 1.17 <= 1.25 ends it.
    assert walk(limit=256, knee=25) == [1, 2, 4, 8, 16, 32, 23, 27]


def test_without_a_knee_the_walk_ends_at_the_limit() -> None:
    assert walk(limit=100, knee=1000) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert next_concurrency([], limit=0) is None


@given(st.integers(min_value=1, max_value=300), st.integers(min_value=2, max_value=300))
def test_every_walk_ends_and_brackets_the_knee(limit: int, knee: int) -> None:
    seen = walk(limit=limit, knee=knee)
    assert len(seen) <= 30
    found = inflection_point(curve(*((c, 0.05 if c < knee else 0.05 * 3 * c / knee) for c in seen)))
    if max(seen) >= knee:
        assert found.knee is not None
        assert found.choose is not None
        assert found.choose < knee <= found.knee
