"""Stamps on a coarse grid are spread inside their bucket, the same way every time."""

from pathlib import Path

import numpy as np
import pytest

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.adapters.trace_files.quantised import grid_step_s, spread


def grid(buckets: int, each: int, step_ms: int) -> str:
    return "".join(
        f'{{"timestamp": {b * step_ms}, "input_length": 9, "output_length": 9, "hash_ids": [1]}}\n'
        for b in range(buckets)
        for _ in range(each)
    )


def test_a_three_second_grid_with_jitter_is_found() -> None:
    stamps = np.repeat(np.arange(40, dtype=np.float64) * 3.0, 5)
    stamps[10:15] -= 0.001
    assert grid_step_s(np.sort(stamps)) == 3.0


def test_poisson_arrivals_and_sparse_whole_seconds_are_no_grid() -> None:
    rng = np.random.default_rng(0)
    assert grid_step_s(np.cumsum(rng.exponential(0.3, 500))) is None
    assert (
        grid_step_s(np.arange(500, dtype=np.float64) * 4.0) is None
    )  # one request a stamp: evenly spaced


def test_spread_requests_stay_in_their_bucket() -> None:
    stamps = np.repeat(np.arange(100, dtype=np.float64) * 3.0, 10)
    moved = spread(stamps, step_s=3.0, rng=np.random.default_rng(1))
    assert (np.diff(moved) >= 0).all()
    assert np.abs(moved - stamps).max() <= 3.0
    gaps = np.diff(moved)
    assert gaps.std() / gaps.mean() == pytest.approx(0.9, abs=0.1)  # 0.9: ten in each bucket


def test_spreading_is_seeded_said_and_can_be_turned_off(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(grid(buckets=30, each=4, step_ms=3000))
    one, same = load_trace(path), load_trace(path)
    other = load_trace(path, options=TraceOptions(seed=1))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert not np.array_equal(one.arrival_s, other.arrival_s)
    assert "QUANTISED_STAMPS_SPREAD" in dict(one.notes.warnings)
    kept = load_trace(path, options=TraceOptions(spread_quantised=False))
    assert set(np.diff(kept.arrival_s).tolist()) == {0.0, 3.0}
    assert "QUANTISED_STAMPS_KEPT" in dict(kept.notes.warnings)
