from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.paired_shares import (
    differ_beyond_noise,
    drop_bounds,
    items_that_would_decide,
    mcnemar_exact_p,
)


def test_without_discordance_100_items_bound_the_drop_at_three_points_and_300_at_one() -> None:
    assert drop_bounds(100, 0, 0)[1] == pytest.approx(0.0295, abs=5e-5)  # 1 - 0.05^(1/100)
    assert drop_bounds(300, 0, 0)[1] == pytest.approx(0.00994, abs=5e-6)


def test_six_percent_discordance_on_3000_items_gives_three_quarters_of_a_point() -> None:
    low, high = drop_bounds(3000, 90, 90)  # 1.645 * sqrt(0.06 / 3000) = 0.0074
    assert high == pytest.approx(0.0074, abs=5e-5)
    assert low == pytest.approx(-high, abs=1e-9)


def test_bounds_reach_the_end_where_every_answer_changed() -> None:
    low, high = drop_bounds(5, 5, 0)
    assert high == 1.0
    assert 0.2 < low < 0.5  # p^5 would be 0.05 at p = 0.55; the score bound is 5/(5 + z^2) - ...


def test_exact_mcnemar_is_a_fair_coin_over_the_discordant_pairs() -> None:
    assert mcnemar_exact_p(0, 0) == 1.0
    assert mcnemar_exact_p(5, 0) == pytest.approx(2 / 32)
    assert mcnemar_exact_p(3, 3) == 1.0


def test_a_drop_on_the_margin_is_decided_by_no_number_of_items() -> None:
    assert items_that_would_decide(1000, 20, 10, margin_frac=0.01) is None


def test_accuracies_with_published_errors_differ_only_beyond_noise(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-05.yaml").read_text())
    a, b = case["input"]["hellaswag"]["a"], case["input"]["hellaswag"]["b"]
    assert case["expected"]["hellaswag"]["verdict"] == "same"
    assert not differ_beyond_noise(a["acc"], a["se"], b["acc"], b["se"])
    assert differ_beyond_noise(0.70, 0.0045, 0.68, 0.0045)  # 0.02 > 1.96 * 0.00636


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 500))
def test_bounds_enclose_the_drop_and_swap_when_the_arms_do(b: int, c: int, same: int) -> None:
    n = max(1, b + c + same)
    low, high = drop_bounds(n, b, c)
    assert -1.0 <= low <= (b - c) / n <= high <= 1.0
    mirrored_low, mirrored_high = drop_bounds(n, c, b)
    assert mirrored_low == pytest.approx(-high, abs=1e-6)
    assert mirrored_high == pytest.approx(-low, abs=1e-6)
