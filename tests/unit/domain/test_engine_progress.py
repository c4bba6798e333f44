import pytest

from tasks.domain.engine_progress import (
    EngineCounters,
    ProgressState,
    StartBudget,
    StartVerdict,
    progress_state,
)


def test_a_start_without_progress_is_given_up_after_its_timeout() -> None:
    budget = StartBudget(timeout_s=10.0, limit_s=100.0)
    assert budget.observe(9.9, log_lines=0, cpu_s=0.0) is StartVerdict.WAIT
    assert budget.observe(10.0, log_lines=0, cpu_s=0.0) is StartVerdict.NO_PROGRESS


def test_a_growing_log_extends_the_budget() -> None:
    budget = StartBudget(timeout_s=10.0, limit_s=100.0)
    assert budget.observe(9.0, log_lines=1, cpu_s=None) is StartVerdict.WAIT
    assert budget.observe(18.0, log_lines=1, cpu_s=None) is StartVerdict.WAIT
    assert budget.observe(19.0, log_lines=1, cpu_s=None) is StartVerdict.NO_PROGRESS


def test_a_busy_process_extends_the_budget_and_an_idle_one_does_not() -> None:
    busy = StartBudget(timeout_s=10.0, limit_s=100.0)
    idle = StartBudget(timeout_s=10.0, limit_s=100.0)
    verdicts = [
        (
            busy.observe(float(now), log_lines=0, cpu_s=now * 1.0),
            idle.observe(float(now), log_lines=0, cpu_s=now * 0.05),
        )
        for now in range(0, 31, 3)
    ]
    assert all(verdict is StartVerdict.WAIT for verdict, _ in verdicts)
    assert verdicts[-1][1] is StartVerdict.NO_PROGRESS


def test_the_limit_ends_a_start_that_moves() -> None:
    budget = StartBudget(timeout_s=10.0, limit_s=20.0)
    assert budget.observe(19.0, log_lines=5, cpu_s=19.0) is StartVerdict.WAIT
    assert budget.observe(20.0, log_lines=6, cpu_s=20.0) is StartVerdict.OVER_LIMIT


def counters(
    running: float | None, prompt: float | None, generated: float | None
) -> EngineCounters:
    return EngineCounters(
        running=running, waiting=0.0, prompt_tokens=prompt, generation_tokens=generated
    )


@pytest.mark.parametrize(
    ("previous", "now", "state"),
    [
        (counters(4, 100, 10), counters(4, 100, 11), ProgressState.MOVING),
        (counters(4, 100, 10), counters(4, 164, 10), ProgressState.MOVING),
        (counters(4, 100, 10), counters(4, 100, 10), ProgressState.STALLED),
        (counters(0, 100, 10), counters(4, 100, 10), ProgressState.IDLE),
        (counters(0, 100, 10), counters(0, 100, 10), ProgressState.IDLE),
        (counters(4, 100, 10), counters(1, 5, 1), ProgressState.RESTARTED),
        (counters(None, 100, 10), counters(4, 100, 10), ProgressState.UNKNOWN),
        (counters(4, None, 10), counters(4, None, 10), ProgressState.UNKNOWN),
    ],
)
def test_two_readings_tell_whether_the_engine_moves(
    previous: EngineCounters, now: EngineCounters, state: ProgressState
) -> None:
    assert progress_state(previous, now) is state
