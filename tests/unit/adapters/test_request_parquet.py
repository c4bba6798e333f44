"""Raw rows survive the disk, unknown values as None."""

from pathlib import Path

import pytest

from tasks.adapters.request_parquet import read_requests, write_requests
from tasks.domain.errors import StorageError
from tasks.domain.request_record import RequestRecord
from tests.fakes.measurements import record

FAILED = RequestRecord(
    index=1,
    due_s=2.0,
    asked_prompt_tokens=5,
    asked_output_tokens=7,
    error_code="TIMEOUT",
    error_message="120 s",
)


def test_records_come_back_equal_and_unknown_stays_none(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    records = (record(0, 1.0, ttft_s=0.2), FAILED)
    write_requests(path, records, about={"salt": "s"})
    assert read_requests(path) == records
    assert read_requests(path)[1].first_token_s is None


def test_a_cut_off_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_requests(path, (FAILED,), about={})
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StorageError, match=r"r\.parquet"):
        read_requests(path)
