"""Bad rows are counted and named; many of them refuse the file; none is silently repaired."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.adapters.trace_files import line_blocks
from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.domain.errors import TraceError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
LENIENT = TraceOptions(max_bad_frac=0.99)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2025-03-04 10:00:01,5", "wrong number of fields"),
        ("2025-03-04 10:00:01,5,5,5", "wrong number of fields"),
        (",5,5", "time stamp is missing"),
        ("2025-13-04 10:00:01,5,5", "time stamp is not readable"),
        ("2025-02-30 10:00:01,5,5", "time stamp is not readable"),
        ("2025-03-04,5,5", "time stamp is not readable"),
        ("yesterday,5,5", "time stamp is not readable"),
        ("2025-03-04 10:00:01,x,5", "prompt tokens are not a whole number"),
        ("2025-03-04 10:00:01,,5", "prompt tokens are not a whole number"),
        ("2025-03-04 10:00:01,5,2.5", "output tokens are not a whole number"),
        ("2025-03-04 10:00:01,5,nan", "output tokens are not a whole number"),
        ("2025-03-04 10:00:01,-5,5", "prompt tokens are negative"),
        ("2025-03-04 10:00:01,5,999999999", "output tokens are above 100,000,000"),
    ],
)
def test_a_bad_csv_row_is_named_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    path = tmp_path / "t"
    path.write_text(f"{HEADER}2025-03-04 10:00:00,7,3\n\n{row}\n2025-03-04 10:00:02,8,4\n")
    trace = load_trace(path, options=LENIENT)
    assert trace.notes.rejected == ((4, reason),)  # header, row, blank line, then the bad row
    assert trace.arrival_s.tolist() == [0.0, 2.0]
    assert trace.notes.rows == 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{oops", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"input_length": 5, "output_length": 5}', "time stamp is missing"),
        ('{"timestamp": "soon", "input_length": 5, "output_length": 5}', "not readable"),
        ('{"timestamp": Infinity, "input_length": 5, "output_length": 5}', "not finite"),
        ('{"timestamp": 1, "input_length": "5", "output_length": 5}', "prompt tokens are not"),
        ('{"timestamp": 1, "input_length": true, "output_length": 5}', "prompt tokens are not"),
        ('{"timestamp": 1, "input_length": 5}', "output tokens are not"),
        (
            '{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": ["a"]}',
            "prefix block ids",
        ),
    ],
)
def test_a_bad_json_row_is_named_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    path = tmp_path / "t"
    path.write_text(f'{{"timestamp": 0.0, "input_length": 7, "output_length": 3}}\n{row}\n')
    trace = load_trace(path, options=LENIENT)
    ((line, said),) = trace.notes.rejected
    assert line == 2
    assert reason in said
    assert len(trace) == 1


def test_a_broken_first_line_does_not_hide_the_format(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('oops\n{"arrival_s": 1.5, "prompt_tokens": 7, "output_tokens": 3}\n')
    trace = load_trace(path, options=LENIENT)
    assert trace.notes.format == "retune-jsonl"
    assert trace.notes.rejected == ((1, "not a JSON object"),)


def test_quoted_fields_and_spelled_numbers_are_read_beside_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens\n"
        '0,"a, b",1e2,5\n+1.5,c,10.0,6\n.5,c,11,7\ninf,c,11,7\n1.2.3,c,11,7\n'
    )
    trace = load_trace(path, options=LENIENT)
    assert trace.arrival_s.tolist() == [0.0, 0.5, 1.5]
    assert trace.prompt_tokens.tolist() == [100, 11, 10]
    assert [reason for _, reason in trace.notes.rejected] == [
        "time stamp is not finite",
        "time stamp is not readable",
    ]


def test_more_than_one_percent_bad_rows_refuse_the_file_by_line_and_value(tmp_path: Path) -> None:
    good = ["2025-03-04 10:00:00,7,3"] * 97
    path = tmp_path / "export.csv"
    path.write_text(HEADER + "\n".join([*good, "broken,7,3", "broken,7,3", good[0]]) + "\n")
    with pytest.raises(TraceError, match=r"2 bad rows of 100 .*line 99.*'broken,7,3'") as raised:
        load_trace(path)
    assert "export.csv" in str(raised.value)
    assert raised.value.code == "TOO_MANY_BAD_ROWS"
    assert len(load_trace(path, options=TraceOptions(max_bad_frac=0.02))) == 98


def test_one_bad_row_in_a_hundred_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(HEADER + "2025-03-04 10:00:00,7,3\n" * 99 + "broken\n")
    assert load_trace(path).notes.rejected_rows == 1


def test_only_the_first_hundred_bad_rows_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(HEADER + "2025-03-04 10:00:00,7,3\n" * 50 + "broken\n" * 150)
    notes = load_trace(path, options=LENIENT).notes
    assert (notes.rejected_rows, len(notes.rejected)) == (150, 100)
    assert notes.rejected[-1][0] == 151  # header, 50 good rows, then the 100th bad one


def test_a_file_of_only_zero_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(HEADER + "2025-03-04 10:00:00,7,0\n")
    with pytest.raises(TraceError, match="zero_output"):
        load_trace(path)


def test_the_hash_is_that_of_the_files_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}2025-03-04 10:00:00,7,3\r\n".encode())
    assert load_trace(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cut=st.integers(min_value=40, max_value=400),
    bad=st.sets(st.integers(min_value=0, max_value=29), max_size=10),
)
def test_the_size_of_a_block_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int, bad: set[int]
) -> None:
    rows = [
        "broken" if i in bad else f"2025-03-04 10:00:{(i * 7) % 60:02d},{i + 1},{i + 2}"
        for i in range(30)
    ]
    path = tmp_path / "t"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 4 * 1024 * 1024)
    whole = load_trace(path, options=LENIENT)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", cut)
    parts = load_trace(path, options=LENIENT)
    assert np.array_equal(whole.arrival_s, parts.arrival_s)
    assert np.array_equal(whole.prompt_tokens, parts.prompt_tokens)
    assert whole.notes == parts.notes
    assert whole.sha256 == parts.sha256


def test_a_bad_row_in_a_large_block_is_cornered_with_its_own_line(tmp_path: Path) -> None:
    rows = [f"2025-03-04 10:{i // 60:02d}:{i % 60:02d},{i + 1},1" for i in range(3_000)]
    rows[777] = "broken"
    rows[2_500] = ""
    path = tmp_path / "t"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    trace = load_trace(path)
    assert trace.notes.rejected == ((779, "wrong number of fields"),)  # header is line 1
    assert (trace.notes.rows, len(trace)) == (2_999, 2_998)
    assert trace.prompt_tokens[-1] == 3_000
