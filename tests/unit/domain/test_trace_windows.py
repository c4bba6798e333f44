"""Windows, cuts, thinning, filters: hand-made traces with known counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.drift import drift_report
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace, TraceNotes
from tasks.domain.trace_selection import compress_gaps, fit_context, select_rows
from tasks.domain.windows import (
    cut,
    off_peak_window,
    p95_rate_req_s,
    peak_window,
    rate_windows,
    thin_by_session,
    unrepresentative,
)


def trace_of(
    arrivals: list[float],
    *,
    session: tuple[str, ...] | None = None,
    tokens: tuple[int, int] = (10, 5),
) -> Trace:
    count = len(arrivals)
    return Trace(
        arrival_s=np.array(arrivals, dtype=np.float64),
        prompt_tokens=np.full(count, tokens[0], dtype=np.int64),
        output_tokens=np.full(count, tokens[1], dtype=np.int64),
        source="made by hand",
        sha256="0" * 64,
        notes=TraceNotes(format="test", rows=count),
        session=session,
        origin_utc="2025-03-04T10:00:00.000000Z",
    )


def windows_trace(rates_req_s: list[float], window_s: float) -> Trace:
    """Evenly spaced requests inside consecutive windows; one closes the last window."""
    arrivals: list[float] = []
    for number, rate in enumerate(rates_req_s):
        count = round(rate * window_s)
        arrivals += [number * window_s + i * window_s / count for i in range(count)]
    return trace_of([*arrivals, len(rates_req_s) * window_s])


def test_windows_are_half_open_and_the_short_rest_is_left_out() -> None:
    windows = rate_windows(trace_of([0.0, 1.0, 10.0, 19.9, 20.0, 24.0]), window_s=10.0)
    assert [w.requests for w in windows] == [2, 2]
    assert windows[1].rate_req_s == 0.2


def test_the_peak_starts_at_a_request_and_the_first_of_ties_wins() -> None:
    window = peak_window(trace_of([0, 7, 8, 9, 20, 27, 28, 29, 50]), length_s=3.0)
    assert (window.start_s, window.end_s, window.requests) == (7.0, 10.0, 3)
    assert "first of ties" in window.rule


def test_the_off_peak_window_is_quiet_but_not_idle() -> None:
    # 600 s at 3/s, 600 s at 1/s, 600 s idle, 600 s at 3/s
    trace = windows_trace([3, 3, 1, 1, 0, 0, 3, 3], 300.0)
    window = off_peak_window(trace, length_s=300.0)
    # The quietest windows that are not idle reach into the gap: 10 % of p95 (3/s) is 0.3/s.
    assert 0.3 <= window.rate_req_s < 1.0
    assert unrepresentative(trace, start_s=window.start_s, end_s=window.end_s) is None


def test_a_window_longer_than_the_trace_is_refused() -> None:
    with pytest.raises(TraceError, match=r"lasts 9\.0 s"):
        peak_window(trace_of([0, 9]), length_s=10.0)


def test_cut_counts_from_its_own_first_request() -> None:
    part = cut(trace_of([0, 5, 6, 9, 10]), 5.0, 10.0)
    assert part.arrival_s.tolist() == [0.0, 1.0, 4.0]
    assert "cut to 5..10 s" in part.source
    assert part.origin_utc is None
    with pytest.raises(TraceError, match="no request"):
        cut(trace_of([0, 5]), 1.0, 4.0)


def test_the_quiet_head_of_the_public_case_is_unrepresentative(shared_dir: Path) -> None:
    f05: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / "f-05.yaml").read_text())
    given_, wanted = f05["input"], f05["expected"]
    trace = windows_trace(given_["rate_per_window_rps"], given_["window_s"])
    assert p95_rate_req_s(trace) == pytest.approx(wanted["warning"]["trace_p95_rps"], abs=0.005)
    # 0.03, 0.04, 0.03 over 180 s make 5, 7 and 5 requests: 17 / 540 s = 0.031
    head = cut(trace, 0.0, 540.0)
    ((code, sentence),) = head.notes.warnings
    assert code == wanted["warning"]["code"]
    assert "window_rps=0.031" in sentence
    baseline = windows_trace([given_["baseline_mean_rps"]] * 8, given_["window_s"])
    report = drift_report(baseline, trace, seed=0, window_s=given_["window_s"])
    assert report.findings[0].value == pytest.approx(wanted["drift"]["rate_ratio"], abs=0.005)
    assert "rate" not in report.drifted_names


def test_huge_gaps_are_compressed_and_said(shared_dir: Path) -> None:
    f05: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / "f-05.yaml").read_text())
    gap = f05["input"]["gaps_s"][0]
    short = compress_gaps(trace_of([0.0, 30.0, 30.0 + gap, 31.0 + gap]))
    assert short.arrival_s.tolist() == [0.0, 30.0, 90.0, 91.0]
    ((code, sentence),) = short.notes.warnings
    assert code == f05["expected"]["gap"]["code"]
    assert "32400" in sentence
    untouched = trace_of([0.0, 30.0])
    assert compress_gaps(untouched) is untouched


def test_thinning_keeps_whole_sessions_near_one_engines_share() -> None:
    session = tuple(f"s{i % 40}" for i in range(400))
    trace = trace_of([float(i) for i in range(400)], session=session)
    part = thin_by_session(trace, replicas=4, seed=3)
    assert part.session is not None
    assert len(part) == 100  # ten sessions of ten
    assert len(set(part.session)) == 10
    fewer_engines = thin_by_session(trace, replicas=5, seed=3, failover=True)
    assert len(fewer_engines) == 100  # 5 - 1 engines carry the fleet


def test_thinning_without_sessions_takes_requests_and_is_seeded() -> None:
    trace = trace_of([float(i) for i in range(90)])
    one, same = (thin_by_session(trace, replicas=3, seed=5) for _ in range(2))
    assert len(one) == 30
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert "by requests" in one.source
    assert thin_by_session(trace, replicas=1, seed=0) is trace


def test_failover_of_a_single_engine_is_refused() -> None:
    with pytest.raises(TraceError, match="leaves no engine"):
        thin_by_session(trace_of([0, 1]), replicas=1, seed=0, failover=True)


def test_the_context_limit_is_inclusive_and_never_clips() -> None:
    trace = trace_of([0, 1], tokens=(4090, 6))
    assert fit_context(trace, 4096) is trace
    with pytest.raises(TraceError, match=r"100\.0 %"):
        fit_context(trace, 4095)


@given(st.lists(st.floats(min_value=0.0, max_value=50.0), min_size=1, max_size=60))
def test_thinned_engines_never_exceed_the_fleet(gaps: list[float]) -> None:
    trace = trace_of(np.cumsum([0.0, *gaps]).tolist())
    part = thin_by_session(trace, replicas=2, seed=1)
    assert 1 <= len(part) <= len(trace)
    assert part.arrival_s[0] == 0.0
    assert (np.diff(part.arrival_s) >= 0).all()


def test_selecting_no_row_is_refused() -> None:
    with pytest.raises(TraceError, match="needed at least one"):
        select_rows(trace_of([0, 1]), np.array([], dtype=np.int64))
