"""Per-request records as Parquet, and back: the raw rows that every figure comes from."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.domain.errors import StorageError
from tasks.domain.request_record import RequestRecord

_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("due_s", pa.float64()),
        ("asked_prompt_tokens", pa.int64()),
        ("asked_output_tokens", pa.int64()),
        ("sent_s", pa.float64()),
        ("headers_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("last_token_s", pa.float64()),
        ("stamps", pa.list_(pa.struct([("at_s", pa.float64()), ("tokens", pa.int64())]))),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("http_status", pa.int64()),
        ("finish_reason", pa.string()),
        ("error_code", pa.string()),
        ("error_message", pa.string()),
    ]
)
_PLAIN = [name for name in _SCHEMA.names if name != "stamps"]


def write_requests(path: Path, records: Sequence[RequestRecord], *, about: dict[str, str]) -> None:
    """Write the records, one row each, with ``about`` as the file's metadata.

    Raises:
        StorageError: if the file cannot be written; no half file is left.
    """
    rows = [
        {name: getattr(record, name) for name in _PLAIN}
        | {"stamps": [{"at_s": at, "tokens": k} for at, k in record.stamps]}
        for record in records
    ]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    table = table.replace_schema_metadata({"retune": json.dumps(about)})
    temporary = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageError(
            f"{path}: the request records cannot be written: {error}; free space or fix the "
            "folder's rights, then run the same command again"
        ) from error


def read_requests(path: Path) -> tuple[RequestRecord, ...]:
    """Return the records of a file that ``write_requests`` made.

    Raises:
        StorageError: if the file is missing, cut off or of another shape.
    """
    try:
        rows = pq.read_table(path).to_pylist()
        known = {field.name for field in dataclasses.fields(RequestRecord)}
        return tuple(
            RequestRecord(
                **{name: row[name] for name in _PLAIN if name in known},
                stamps=tuple((s["at_s"], s["tokens"]) for s in row["stamps"]),
            )
            for row in rows
        )
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise StorageError(
            f"{path}: not a readable file of request records: {error}; measure again"
        ) from error
