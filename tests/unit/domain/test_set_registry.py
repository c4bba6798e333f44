"""The order of champions: what a rollback goes back to, whoever moved the alias in between."""

from tasks.domain.set_registry import history_with, rolled_back


def test_the_champion_in_force_is_last_however_it_came_there() -> None:
    assert history_with((), None) == ()
    assert history_with((), "1") == ("1",)
    assert history_with(("1", "2"), "2") == ("1", "2")
    assert history_with(("1", "2"), "3") == ("1", "2", "3")  # put there by hand: a promotion
    assert history_with(("1", "2", "3"), "1") == ("1",)  # put back by hand: a rollback
    assert history_with(("1", "2", "1", "3"), "1") == ("1", "2", "1")


def test_a_rollback_goes_to_the_champion_before_and_then_to_the_one_before_that() -> None:
    history: tuple[str, ...] | None = ("1", "3", "2")
    seen = []
    while history is not None:
        seen.append(history[-1])
        history = rolled_back(history, None)
    assert seen == ["2", "3", "1"]


def test_a_chosen_version_is_gone_back_to_or_taken_in() -> None:
    assert rolled_back(("1", "2", "3"), "1") == ("1",)
    assert rolled_back(("1", "3"), "2") == ("1", "2")
    assert rolled_back((), "2") == ("2",)
