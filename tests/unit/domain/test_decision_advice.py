"""What would change a decision is named by what stands against it."""

from dataclasses import replace

from tasks.domain.decision import DecisionOutcome
from tests.fakes.window_measurements import run
from tests.unit.domain.test_decision import GATES, challenger, decided, reference


def test_a_gain_under_the_noise_floor_asks_for_rounds_and_not_for_load() -> None:
    # + 10 %, at least + 5 % by its windows, where alike runs differ by 11 %.
    found = decided(
        reference(measurements=(run(*[80] * 8),)),
        challenger(measurements=(run(*[84, 92] * 4),)),
        gates=replace(GATES, noise_floor_frac=0.11),
    )
    assert found.outcome is DecisionOutcome.INCONCLUSIVE
    (change,) = found.would_change
    assert change.startswith("tuned: another round")
