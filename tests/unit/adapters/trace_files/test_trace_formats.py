"""Every row format is recognised by its content, and its units and zones are read right."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tasks.adapters.trace_files.loading import load_trace
from tasks.adapters.trace_files.options import TraceOptions
from tasks.adapters.trace_files.writing import write_trace
from tasks.domain.errors import TraceError
from tasks.domain.trace import Trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def loaded(folder: Path, content: str | bytes, options: TraceOptions | None = None) -> Trace:
    path = folder / "trace.bin"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_trace(path, options=options or TraceOptions())


def jsonl(*rows: Mapping[str, object]) -> str:
    return "".join(json.dumps(dict(row)) + "\n" for row in rows)


def codes(trace: Trace) -> list[str]:
    return [code for code, _ in trace.notes.warnings]


@pytest.mark.parametrize("fraction", ["", ".5", ".500", ".500000", ".5000000", ".500000000"])
@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+0000"])
def test_fractions_of_any_length_and_zones_are_read(
    tmp_path: Path, fraction: str, zone: str
) -> None:
    rows = f"{AZURE}\n2025-03-04 10:00:00{zone},7,3\n2025-03-04T10:00:02{fraction}{zone},8,4\n"
    trace = loaded(tmp_path, rows)
    assert trace.arrival_s.tolist() == [0.0, 2.5 if fraction else 2.0]
    assert trace.origin_utc == "2025-03-04T10:00:00.000000Z"
    assert ("ASSUMED_UTC" in codes(trace)) == (zone == "")


def test_offsets_are_applied(tmp_path: Path) -> None:
    rows = f"{AZURE}\n2025-03-04 10:00:00+02:00,7,3\n2025-03-04 10:00:00+01:00,8,4\n"
    trace = loaded(tmp_path, rows)
    assert trace.arrival_s.tolist() == [0.0, 3600.0]
    assert trace.origin_utc == "2025-03-04T08:00:00.000000Z"


def test_bom_carriage_returns_blank_lines_and_a_missing_last_line_end_do_no_harm(
    tmp_path: Path,
) -> None:
    rows = f"\ufeff{AZURE}\r\n2025-03-04 10:00:00,7,3\r\n\r\n2025-03-04 10:00:01,8,4"
    trace = loaded(tmp_path, rows)
    assert trace.prompt_tokens.tolist() == [7, 8]
    assert (trace.notes.rows, trace.notes.rejected_rows) == (2, 0)


def test_semicolons_extra_columns_and_another_column_order_are_accepted(tmp_path: Path) -> None:
    rows = "Region;GeneratedTokens;TIMESTAMP;ContextTokens\nx;3;2025-03-04 10:00:00;7\n"
    trace = loaded(tmp_path, rows)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([7], [3])


def test_burstgpt_reads_seconds_sessions_and_drops_failed_requests(tmp_path: Path) -> None:
    rows = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n"
        "19440110.0,s1,43,GPT-4,906,446,1352,Conversation log\n"
        "19440161.5,s2,2,ChatGPT,36,0,36,API log\n"
        "19440192.0,s1,2,ChatGPT,36,29,65,Conversation log\n"
    )
    trace = loaded(tmp_path, rows)
    assert trace.notes.format == "burstgpt-csv"
    assert trace.arrival_s.tolist() == [0.0, 82.0]
    assert trace.session == ("s1", "s1")
    assert trace.notes.dropped == (("zero_output", 1),)
    assert trace.notes.rejected_rows == 0
    assert trace.origin_utc is None  # 19,440,110 s is no Unix time of this century


def test_mooncake_stamps_are_milliseconds_of_512_token_blocks(tmp_path: Path) -> None:
    rows = jsonl(
        {"timestamp": 2000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 5500, "input_length": 512, "output_length": 6, "hash_ids": [0]},
    )
    trace = loaded(tmp_path, rows)
    assert trace.notes.format == "mooncake-jsonl"
    assert trace.arrival_s.tolist() == [0.0, 3.5]
    assert trace.prefix_blocks == ((0, 1, 2), (0,))
    assert trace.prefix_block_tokens == 512
    assert "ORIGIN_SUBTRACTED" in codes(trace)


def test_a_timed_trace_with_16_token_blocks_is_read_in_seconds(tmp_path: Path) -> None:
    rows = jsonl(
        {"timestamp": 0.0, "input_length": 33, "output_length": 5, "hash_ids": [4, 5, 6]},
        {"timestamp": 1.25, "input_length": 16, "output_length": 6, "hash_ids": [4]},
    )
    trace = loaded(tmp_path, rows)
    assert trace.notes.format == "timed-trace-jsonl"
    assert trace.arrival_s.tolist() == [0.0, 1.25]
    assert trace.prefix_block_tokens == 16


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_unix_time_is_recognised_in_every_unit(tmp_path: Path, unit: str, scale: int) -> None:
    # 1_741_082_400 s is 2025-03-04 10:00:00 UTC
    rows = jsonl(
        *(
            {"timestamp": 1_741_082_400 * scale + late, "input_length": 9, "output_length": 9}
            for late in (0, 4 * scale)
        )
    )
    trace = loaded(tmp_path, rows)
    np.testing.assert_allclose(trace.arrival_s, [0.0, 4.0], atol=1e-6)
    assert trace.origin_utc == "2025-03-04T10:00:00.000000Z"
    assert f"read in {unit} " in dict(trace.notes.warnings)["TIME_UNIT"]


def test_whole_numbers_too_slow_for_seconds_are_read_in_milliseconds(tmp_path: Path) -> None:
    rows = jsonl(
        *({"timestamp": 250 * i, "input_length": 9, "output_length": 9} for i in range(30))
    )
    assert loaded(tmp_path, rows).duration_s == pytest.approx(7.25)  # 29 gaps of 250 ms
    told = loaded(tmp_path, rows, TraceOptions(time_unit="s"))
    assert told.duration_s == 7250.0


def test_iso_stamps_inside_json_are_read(tmp_path: Path) -> None:
    rows = jsonl(
        {"timestamp": "2025-03-04T10:00:00Z", "input_length": 9, "output_length": 9},
        {"timestamp": "2025-03-04T10:00:03Z", "input_length": 9, "output_length": 9},
    )
    assert loaded(tmp_path, rows).arrival_s.tolist() == [0.0, 3.0]


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    rows = jsonl(
        {
            "arrival_s": 0.0,
            "prompt_tokens": 40,
            "output_tokens": 5,
            "prefix_blocks": [3, 4],
            "prefix_block_tokens": 16,
            "session": "a",
        },
        {
            "arrival_s": 0.1,
            "prompt_tokens": 50,
            "output_tokens": 6,
            "prefix_blocks": [],
            "prefix_block_tokens": 16,
            "session": "b",
        },
    )
    first = loaded(tmp_path, rows)
    write_trace(first, tmp_path / "again.jsonl")
    second = load_trace(tmp_path / "again.jsonl")
    assert second.arrival_s.tolist() == first.arrival_s.tolist() == [0.0, 0.1]
    assert second.prefix_blocks == ((3, 4), ())
    assert second.prefix_block_tokens == 16
    assert second.session == ("a", "b")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no line"),
        ("\n \n", "holds no line"),
        ("a,b,c\n1,2,3\n", "no known trace format"),
        ('{"prompt": "x"}\n', "no known trace format"),
        ('[{"timestamp": 0}]', "one JSON array"),
        (b"\xff\xfeT\x00I\x00", "UTF-16"),
        (b"\x1f\x8b\x08\x00", "gzip"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_to_do(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    with pytest.raises(TraceError, match=said):
        loaded(tmp_path, content)


def test_an_absent_path_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"):
        load_trace(tmp_path / "absent.csv")
    with pytest.raises(TraceError, match="ServeGen folder"):
        load_trace(tmp_path)
