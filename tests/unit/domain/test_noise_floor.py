"""The A/A floor is what chance exceeds once in twenty, by the pairs that a study has."""

import numpy as np
import pytest

from tasks.domain.decision import ArmEvidence, Gates, StudyEvidence, decide
from tasks.domain.endpoint import Checkpoint
from tasks.domain.noise_floor import averaged_noise, noise_floor, repeat_pairs
from tests.fakes.window_measurements import run


def test_the_floor_is_a_prediction_bound_of_the_pairs_differences() -> None:
    same = (run(*[80] * 6), run(*[80] * 6, repeat=1))
    apart = (run(*[78] * 6), run(*[82] * 6, repeat=1))  # 4 / 80 = 5 %
    # Student's t of 2 pairs is 2.920 and of 1 pair 6.314 (one-sided 95 %).
    assert noise_floor([same, apart]) == pytest.approx(2.920 * 0.05 / 2**0.5, rel=1e-3)
    assert noise_floor([apart]) == pytest.approx(6.314 * 0.05, rel=1e-3)
    assert noise_floor([]) is None
    assert noise_floor([(run(*[0] * 6), run(*[0] * 6))]) is None


def test_more_pairs_of_the_same_differences_give_a_lower_floor() -> None:
    apart = (run(*[78] * 6), run(*[82] * 6, repeat=1))
    floors = [noise_floor([apart] * k) or 0.0 for k in (1, 2, 3, 6)]
    assert floors == sorted(floors, reverse=True)
    assert floors[-1] > 0.05 * 1.645  # the normal bound, that of ever more pairs


def test_a_shorter_repeat_sets_the_floor_on_the_windows_that_it_has() -> None:
    whole, short = run(80, 80, 10, 10, 10, 10), run(80, 84, repeat=1)
    # 80 against 82 of both windows: 2 / 81.
    assert noise_floor([(whole, short)]) == pytest.approx(6.314 * 2 / 81, rel=1e-3)


def test_alike_runs_pass_the_floor_once_in_twenty() -> None:
    rng, passed, studies = np.random.default_rng(3), 0, 400
    for _ in range(studies):
        a, b = (
            [run(*[int(level)] * 6, offered=20_000, repeat=i) for i, level in enumerate(levels)]
            for levels in rng.normal(10_000, 200, size=(2, 2))  # 2 % from run to run
        )
        floor = noise_floor([*repeat_pairs(a), *repeat_pairs(b)])
        assert floor is not None
        means = [np.mean([m.goodput_req_s for m in runs]) for runs in (a, b)]
        passed += means[1] / means[0] - 1 > floor * averaged_noise(a, b)
    assert 8 <= passed <= 36  # 20 expected, 3.7 standard deviations


def test_the_noise_of_a_mean_is_that_of_its_runs() -> None:
    whole, again, short = run(*[80] * 6), run(*[80] * 6, repeat=1), run(80, 80, repeat=1)
    assert averaged_noise([whole], [whole]) == 1.0
    assert averaged_noise([whole, again], [whole, again]) == pytest.approx(0.5**0.5)
    assert averaged_noise([whole, again], [whole]) == pytest.approx(0.75**0.5)
    # Two of six windows are shared: weights 5/6 and 1/6, squares 26/36.
    assert averaged_noise([whole, short], [whole, short]) == pytest.approx((26 / 36) ** 0.5)


def test_pairs_are_neighbouring_repeats_of_one_schedule() -> None:
    first, second = run(*[80] * 6), run(*[81] * 6, repeat=1)
    other = run(*[10] * 6, sha="held out")
    assert repeat_pairs([first, other, second]) == ((first, second),)
    assert repeat_pairs([first]) == ()


def test_a_gain_beyond_the_floor_of_averaged_runs_is_not_called_noise() -> None:
    checkpoint = Checkpoint(
        model="m", method="none", sha256="a" * 64, serve_as="reference", dtype="bfloat16"
    )
    arms = tuple(
        ArmEvidence(
            name=name,
            checkpoint=checkpoint,
            is_reference=name == "plain",
            measurements=(run(*[good] * 8), run(*[good] * 8, repeat=1)),
            slo_ok=False,  # so no arm wins
        )
        for name, good in (("plain", 80), ("tuned", 88))
    )
    # + 10 %: above 0.13 / sqrt(2), below the 0.13 of single runs.
    found = decide(
        StudyEvidence(regime="peak", arms=arms, seed=1),
        gates=Gates(min_gain_frac=0.05, noise_floor_frac=0.13),
    )
    assert {r.gate: r.passed for r in found.reasons}["better"] is True
    assert "discriminating" not in {r.gate for r in found.reasons}
