"""Write a trace as our own JSON lines, which load_trace reads back."""

import json
from pathlib import Path

from tasks.domain.errors import StorageError
from tasks.domain.trace import Trace


def write_trace(trace: Trace, path: Path) -> None:
    """Write one JSON object a request: arrival_s, prompt_tokens, output_tokens and what is known.

    ``prefix_blocks`` and ``session`` are written only where the trace has them. The file appears
    whole or not at all: it is written beside and renamed.

    Raises:
        StorageError: if the file cannot be written.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            for row in range(len(trace)):
                file.write(json.dumps(_record(trace, row), separators=(",", ":")) + "\n")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageError(
            f"trace could not be written to {path} ({error}); needed a writable folder with "
            f"space; free space or choose another path"
        ) from error


def _record(trace: Trace, row: int) -> dict[str, object]:
    record: dict[str, object] = {
        "arrival_s": float(trace.arrival_s[row]),
        "prompt_tokens": int(trace.prompt_tokens[row]),
        "output_tokens": int(trace.output_tokens[row]),
    }
    if trace.prefix_blocks is not None:
        record["prefix_blocks"] = list(trace.prefix_blocks[row])
        record["prefix_block_tokens"] = trace.prefix_block_tokens
    if trace.session is not None:
        record["session"] = trace.session[row]
    return record
