"""Shown, broken, or not enough requests to tell."""

import pytest

from tasks.domain.slo import Slo
from tasks.domain.slo_holding import Holding, slo_holding
from tests.fakes.measurements import measurement, open_point


def slo(target: float) -> Slo:
    return Slo(ttft_s=1.0, attainment_frac=target)


def test_29_good_requests_show_a_target_of_90_percent() -> None:
    # one-sided 95 %: 0.05^(1/29) = 0.9018 is the lower bound without a violation; 28 give 0.8985
    assert slo_holding([measurement(open_point(), good=29)], slo(0.9)).holding is Holding.HOLDS
    unproven = slo_holding([measurement(open_point(), good=28)], slo(0.9))
    assert unproven.holding is Holding.UNPROVEN
    assert unproven.requests_that_would_decide == 29


def test_the_repeats_of_a_load_are_pooled() -> None:
    halves = [measurement(open_point(), good=15), measurement(open_point(repeat=1), good=14)]
    assert slo_holding(halves, slo(0.9)).holding is Holding.HOLDS


def test_many_violations_are_shown() -> None:
    found = slo_holding([measurement(open_point(), good=60, bad=40)], slo(0.9))
    assert found.holding is Holding.BROKEN
    assert "60 of 100" in found.sentence


def test_a_target_of_one_can_be_broken_but_not_shown() -> None:
    found = slo_holding([measurement(open_point(), good=1000)], slo(1.0))
    assert found.holding is Holding.UNPROVEN
    assert found.requests_that_would_decide is None
    broken = slo_holding([measurement(open_point(), good=999, bad=1)], slo(1.0))
    assert broken.holding is Holding.BROKEN


def test_nothing_measured_is_unproven_and_has_no_attainment() -> None:
    found = slo_holding([], slo(0.99))
    assert (found.holding, found.attainment_frac) == (Holding.UNPROVEN, None)
    assert found.requests_that_would_decide == pytest.approx(299)
