"""The search brackets the largest rate that keeps the SLO, whatever the engine."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import InvalidParameterError
from tasks.domain.measurement_windows import grows
from tasks.domain.sustainable_rate import RateResult, SustainableRate, search_sustainable_rate


def search(limit: float, *, known: Sequence[RateResult] = (), **options: float) -> SustainableRate:
    """Run the search on an engine that keeps the SLO up to ``limit`` times the rate."""
    running = search_sustainable_rate(known=known, **options)
    probe = next(running)
    for _ in range(100):
        share = 1.0 if probe.multiple <= limit else 0.5
        try:
            probe = running.send(RateResult(multiple=probe.multiple, n=1000, attainment_frac=share))
        except StopIteration as finished:
            answer: SustainableRate = finished.value
            return answer
    raise AssertionError("the search did not end")


def test_it_doubles_until_one_fails_and_then_halves_the_bracket() -> None:
    # 1, 2 pass, 4 fails; then sqrt(2 x 4) = 2.83 passes, sqrt(2.83 x 4) = 3.36 fails,
    # sqrt(2.83 x 3.36) = 3.08 fails; 3.08 / 2.83 = 1.09 <= 1.1.
    found = search(3.0, resolution_frac=0.1)
    assert [round(p.multiple, 2) for p in found.probes] == [1.0, 2.0, 4.0, 2.83, 3.36, 3.08]
    assert found.multiple == pytest.approx(2.828, abs=1e-3)
    assert found.fails_at == pytest.approx(3.084, abs=1e-3)
    assert "n=1000" in found.reason


def test_it_halves_where_the_traffics_own_rate_fails() -> None:
    found = search(0.3, resolution_frac=0.1)
    assert [round(p.multiple, 2) for p in found.probes][:3] == [1.0, 0.5, 0.25]
    assert found.multiple is not None
    assert found.multiple <= 0.3


def test_an_engine_that_never_passes_gives_no_rate() -> None:
    found = search(0.01)
    assert found.multiple is None
    assert found.fails_at == 0.125
    assert "no multiple that was tried keeps the SLO" in found.reason


def test_an_engine_that_never_fails_is_limited_by_the_search_and_says_so() -> None:
    found = search(100.0)
    assert (found.multiple, found.fails_at) == (8.0, None)
    assert "the limit of the search" in found.reason


@given(st.floats(min_value=0.13, max_value=7.9), st.floats(min_value=0.01, max_value=0.5))
def test_the_bracket_holds_the_true_limit_within_the_resolution(
    limit: float, resolution: float
) -> None:
    found = search(limit, resolution_frac=resolution)
    assert found.multiple is not None
    assert found.fails_at is not None
    assert found.multiple <= limit < found.fails_at
    assert found.fails_at / found.multiple <= 1 + resolution


def test_a_forecast_is_asked_first_and_left_in_small_steps() -> None:
    # 1.0 failed before: 0.8 as forecast fails, 0.8 / 1.25 = 0.64 passes, sqrt(0.64 x 0.8) = 0.72
    # fails; 0.72 / 0.64 = 1.12 <= 1.15.
    failed = RateResult(multiple=1.0, n=500, attainment_frac=0.9)
    found = search(0.7, known=[failed], forecast=0.8, resolution_frac=0.15)
    assert [round(p.multiple, 2) for p in found.probes] == [1.0, 0.8, 0.64, 0.72]
    assert found.multiple == pytest.approx(0.64)
    assert found.fails_at == pytest.approx(0.7155, abs=1e-3)


def test_a_forecast_far_beyond_the_search_leaves_the_doubling() -> None:
    passed = RateResult(multiple=1.0, n=500, attainment_frac=1.0)
    found = search(3.0, known=[passed], forecast=16.0, resolution_frac=0.5)
    assert [round(p.multiple, 2) for p in found.probes] == [1.0, 2.0, 4.0, 2.83]


@pytest.mark.parametrize("forecast", [1.01, 0.9, 7.9])
def test_a_forecast_outside_the_bracket_that_is_known_is_not_asked(forecast: float) -> None:
    passed = RateResult(multiple=1.0, n=500, attainment_frac=1.0)
    found = search(1.3, known=[passed], forecast=forecast, resolution_frac=0.15)
    assert [round(p.multiple, 2) for p in found.probes] == [1.0, 1.25, 1.56, 1.4]


def test_known_results_that_are_close_enough_need_no_probe() -> None:
    known = [
        RateResult(multiple=1.0, n=500, attainment_frac=1.0),
        RateResult(multiple=1.04, n=520, attainment_frac=0.9),
    ]
    with pytest.raises(StopIteration) as finished:
        next(search_sustainable_rate(known=known))
    assert (finished.value.value.multiple, finished.value.value.fails_at) == (1.0, 1.04)


def test_a_pass_above_a_failure_is_luck() -> None:
    known = [
        RateResult(multiple=1.0, n=500, attainment_frac=0.9),
        RateResult(multiple=1.2, n=600, attainment_frac=1.0),
    ]
    assert next(search_sustainable_rate(known=known)).multiple == 0.5


def test_a_diverging_queue_fails_even_while_the_share_is_still_good() -> None:
    running = search_sustainable_rate(highest=2.0)
    assert next(running).stop_when_diverged
    probe = running.send(RateResult(multiple=1.0, n=50, attainment_frac=1.0, diverged=True))
    assert probe.multiple == 0.5


def test_a_result_that_must_not_be_believed_ends_the_search() -> None:
    running = search_sustainable_rate()
    next(running)
    with pytest.raises(StopIteration) as finished:
        running.send(
            RateResult(multiple=1.0, n=10, attainment_frac=None, doubts=("CLIENT_SEND_LATE",))
        )
    assert finished.value.value.multiple is None
    assert "must not be believed (CLIENT_SEND_LATE, n=10)" in finished.value.value.reason


def test_a_bounded_search_says_that_its_bracket_could_be_narrower() -> None:
    found = search(3.0, max_probes=3)
    assert [p.multiple for p in found.probes] == [1.0, 2.0, 4.0]
    assert (found.multiple, found.fails_at) == (2.0, 4.0)
    assert "stopped after 3 probes" in found.reason


def test_an_interval_that_holds_the_target_is_reported() -> None:
    running = search_sustainable_rate(highest=1.0)
    next(running)
    result = RateResult(multiple=1.0, n=500, attainment_frac=0.992, low_frac=0.98, high_frac=0.997)
    with pytest.raises(StopIteration) as finished:
        running.send(result)
    assert "95 % 98.00%-99.70% holds the target" in finished.value.value.reason


@pytest.mark.parametrize(
    "options", [{"lowest": 0.0}, {"start": 9.0}, {"resolution_frac": 0.0}, {"highest": 0.5}]
)
def test_bounds_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidParameterError):
        next(search_sustainable_rate(**options))


def test_growth_counts_only_beyond_a_tenth_of_the_arrivals_and_the_noise() -> None:
    # 100 -> 150: noise 3 sqrt(250) = 47.4 < 50; 10 % of 400 arrivals = 40 < 50.
    assert grows(at_half=100, at_end=150, arrivals=400)
    assert not grows(at_half=100, at_end=147, arrivals=400)  # 47 <= 3 sqrt(247) = 47.1
    assert not grows(at_half=100, at_end=150, arrivals=600)  # 10 % of arrivals = 60
    assert not grows(at_half=150, at_end=100, arrivals=10)
