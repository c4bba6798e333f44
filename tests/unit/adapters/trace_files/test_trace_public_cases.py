"""Faults that people met in public with trace files (cases f-*), one test a behaviour."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace
from tasks.domain.trace_selection import dropped_frac, fit_context

LENIENT = TraceOptions(max_bad_frac=0.5)


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text())
    return found


def codes(trace: Trace) -> list[str]:
    return [code for code, _ in trace.notes.warnings]


def loaded(folder: Path, text: str, options: TraceOptions = LENIENT) -> Trace:
    path = folder / "any-name.dat"
    path.write_bytes(text.encode())
    return load_trace(path, options=options)


def test_seven_digit_stamps_keep_two_simultaneous_rows(shared_dir: Path, tmp_path: Path) -> None:
    f01 = case(shared_dir, "f-01")
    trace = loaded(tmp_path, f01["input"]["csv"], TraceOptions())
    assert len(trace) == f01["expected"]["rows"] == 3
    np.testing.assert_allclose(trace.arrival_s, f01["expected"]["arrivals_s"], atol=1e-6)
    assert codes(trace) == ["ASSUMED_UTC"]


def test_a_naive_row_in_a_file_with_zones_is_refused(shared_dir: Path, tmp_path: Path) -> None:
    f01 = case(shared_dir, "f-01")
    wanted = f01["expected"]["csv_2024_style"]
    trace = loaded(tmp_path, f01["input"]["csv_2024_style"])
    assert len(trace) == wanted["rows"]
    assert trace.notes.rejected == tuple((r["line"], r["reason"]) for r in wanted["rejected"])


def test_a_given_zone_accepts_the_naive_row_with_a_warning(
    shared_dir: Path, tmp_path: Path
) -> None:
    text = case(shared_dir, "f-01")["input"]["csv_2024_style"]
    trace = loaded(tmp_path, text, TraceOptions(timezone="UTC"))
    assert (len(trace), codes(trace)) == (2, ["ZONE_GIVEN"])
    # 00:00:00 comes before 00:00:00.009930, so the rows are sorted.
    np.testing.assert_allclose(trace.arrival_s, [0.0, 0.00993], atol=1e-9)
    assert trace.notes.out_of_order_rows == 1


def test_late_rows_are_sorted_and_impossible_stamps_refused(
    shared_dir: Path, tmp_path: Path
) -> None:
    f03 = case(shared_dir, "f-03")
    trace = loaded(tmp_path, f03["input"]["jsonl"])
    pairs = [list(p) for p in zip(trace.arrival_s, trace.prompt_tokens, strict=True)]
    assert pairs == f03["expected"]["schedule"]
    wanted = tuple((r["line"], r["reason"]) for r in f03["expected"]["rejected"])
    assert trace.notes.rejected == wanted
    assert trace.notes.out_of_order_rows == 1


def test_zero_lengths_are_dropped_and_the_context_limit_is_exact(
    shared_dir: Path, tmp_path: Path
) -> None:
    f04 = case(shared_dir, "f-04")
    rows = [
        f'{{"arrival_s": {i}, "prompt_tokens": {r["in"]}, "output_tokens": {r["out"]}}}'
        for i, r in enumerate(f04["input"]["rows"])
    ]
    trace = loaded(tmp_path, "\n".join(rows))
    limit = f04["input"]["max_model_len"]
    with pytest.raises(TraceError, match="max_dropped_frac") as refused:
        fit_context(trace, limit)
    assert refused.value.code == "TOO_MANY_OVER_CONTEXT"
    fitted = fit_context(trace, limit, max_dropped_frac=1.0)
    kept = [list(p) for p in zip(fitted.prompt_tokens, fitted.output_tokens, strict=True)]
    assert kept == f04["expected"]["kept"]
    assert dict(fitted.notes.dropped) == f04["expected"]["dropped"]
    assert round(100 * dropped_frac(fitted.notes), 1) == f04["expected"]["dropped_pct"]


def test_the_repeated_hour_is_split_at_the_jump_back(shared_dir: Path, tmp_path: Path) -> None:
    f07 = case(shared_dir, "f-07")
    rows = f07["input"]["rows"]
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{r},5,5\n" for r in rows)
    trace = loaded(tmp_path, text, TraceOptions(timezone=f07["input"]["tz"]))
    # UTC 00:59:58, 01:00:01, 01:59:59, 02:00:02
    assert trace.arrival_s.tolist() == [0.0, 3.0, 3601.0, 3604.0]
    assert trace.origin_utc == "2026-10-25T00:59:58.000000Z"
    assert trace.notes.out_of_order_rows == 0
    assert f07["expected"]["warning"] in codes(trace)
    untold = loaded(tmp_path, text)
    assert f07["expected"]["without_tz"]["warning"] in codes(untold)


def test_a_wall_clock_that_the_zone_skipped_is_an_error(shared_dir: Path, tmp_path: Path) -> None:
    f07 = case(shared_dir, "f-07")
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{f07['input']['spring_row']},5,5\n"
    with pytest.raises(TraceError, match="does not exist") as raised:
        loaded(tmp_path, text, TraceOptions(timezone="Europe/Berlin"))
    assert raised.value.code == f07["expected"]["spring_row"]["error_code"]
