"""Schedules: absolute send times scaled, cut and cycled from a trace."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import TraceError
from tasks.domain.scheduling import build_schedule, seam_s
from tasks.domain.trace import Trace, TraceNotes
from tasks.domain.trace_profile import gap_cv


def trace_of(
    arrivals: list[float], blocks: tuple[tuple[int, ...], ...] | None = None, prompt: int = 100
) -> Trace:
    count = len(arrivals)
    return Trace(
        arrival_s=np.array(arrivals, dtype=np.float64),
        prompt_tokens=np.full(count, prompt, dtype=np.int64),
        output_tokens=np.arange(1, count + 1, dtype=np.int64),
        source="made by hand",
        sha256="0" * 64,
        notes=TraceNotes(format="test", rows=count),
        prefix_blocks=blocks,
        prefix_block_tokens=32,
    )


def test_the_time_axis_is_divided_by_the_rate_scale() -> None:
    schedule = build_schedule(trace_of([0, 2, 6, 20]), duration_s=5.0, rate_scale=2.0, seed=1)
    assert [r.due_s for r in schedule.requests] == [0.0, 1.0, 3.0]  # 10 s would be too late
    assert schedule.offered_req_s == 0.6
    assert schedule.notes == ()


def test_a_short_trace_is_cycled_with_a_seam_of_one_mean_gap() -> None:
    trace = trace_of([0, 1, 4])  # mean gap 2 s, so a cycle of 6 s
    schedule = build_schedule(trace, duration_s=12.0, seed=1)
    assert seam_s(trace) == 2.0
    assert [r.due_s for r in schedule.requests] == [0, 1, 4, 6, 7, 10]
    assert [r.output_tokens for r in schedule.requests] == [1, 2, 3, 1, 2, 3]
    assert [r.index for r in schedule.requests] == list(range(6))
    assert schedule.notes[0][0] == "TRACE_CYCLED"


def test_cycling_keeps_the_traces_rate() -> None:
    trace = trace_of([0, 1, 4])
    schedule = build_schedule(trace, duration_s=600.0, seed=1)
    assert schedule.offered_req_s == 0.5  # 2 gaps in 4 s


def test_a_later_cycle_reuses_no_block_of_an_earlier_one() -> None:
    trace = trace_of([0, 2], blocks=((0, 1), (0, 2)))
    schedule = build_schedule(trace, duration_s=8.0, seed=1)
    assert [r.prefix_blocks for r in schedule.requests] == [(0, 1), (0, 2), (3, 4), (3, 5)]


def test_only_whole_blocks_are_sent_as_blocks() -> None:
    trace = trace_of([0, 2], blocks=((0, 1, 2, 3), (0,)))  # 100 tokens hold 3 blocks of 32
    schedule = build_schedule(trace, duration_s=3.0, seed=1)
    assert [r.prefix_blocks for r in schedule.requests] == [(0, 1, 2), (0,)]


def test_the_same_input_gives_the_same_hash_and_other_input_another() -> None:
    trace = trace_of([0, 2, 6])
    one = build_schedule(trace, duration_s=5.0, seed=1)
    assert one.sha256 == build_schedule(trace, duration_s=5.0, seed=1).sha256
    assert one.sha256 != build_schedule(trace, duration_s=5.0, seed=2).sha256
    assert one.sha256 != build_schedule(trace, duration_s=5.0, rate_scale=1.1, seed=1).sha256


def test_requests_beyond_the_context_are_dropped_only_when_confirmed() -> None:
    trace = trace_of([0, 2, 6])
    with pytest.raises(TraceError, match="max_dropped_frac"):
        build_schedule(trace, duration_s=5.0, seed=1, max_model_len=102)
    kept = build_schedule(trace, duration_s=5.0, seed=1, max_model_len=102, max_dropped_frac=0.5)
    assert [r.output_tokens for r in kept.requests] == [1, 2, 1]  # cycled every 4 s


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_impossible_durations_and_scales_are_refused(value: float) -> None:
    with pytest.raises(TraceError, match="duration_s"):
        build_schedule(trace_of([0, 1]), duration_s=value, seed=1)
    with pytest.raises(TraceError, match="rate_scale"):
        build_schedule(trace_of([0, 1]), duration_s=1.0, rate_scale=value, seed=1)


def test_an_empty_trace_is_refused_with_what_to_do() -> None:
    with pytest.raises(TraceError, match="load or cut the trace anew"):
        build_schedule(trace_of([]), duration_s=1.0, seed=1)


def test_a_single_request_is_sent_once() -> None:
    assert len(build_schedule(trace_of([0]), duration_s=100.0, seed=1).requests) == 1


@given(
    gaps=st.lists(st.floats(min_value=0.01, max_value=10.0), min_size=3, max_size=40),
    scale=st.floats(min_value=0.2, max_value=5.0),
)
def test_scaling_keeps_burstiness_and_order(gaps: list[float], scale: float) -> None:
    arrivals = np.cumsum([0.0, *gaps])
    duration = float(arrivals[-1]) / scale + 1e-6
    schedule = build_schedule(
        trace_of(arrivals.tolist()), duration_s=duration, rate_scale=scale, seed=1
    )
    due = np.array([r.due_s for r in schedule.requests])
    assert due.size == arrivals.size
    assert (np.diff(due) >= 0).all()
    assert gap_cv(due) == pytest.approx(gap_cv(arrivals))


def test_the_beginning_of_a_schedule_keeps_the_hash_of_the_whole() -> None:
    whole = build_schedule(trace_of([0, 2, 6, 20]), duration_s=30.0, seed=1)
    first = whole.beginning(6.0)
    assert [r.due_s for r in first.requests] == [0.0, 2.0]
    assert (first.duration_s, first.offered_req_s) == (6.0, pytest.approx(2 / 6))
    assert first.sha256 == whole.sha256
    assert first.beginning(1.0).sha256 == whole.sha256
