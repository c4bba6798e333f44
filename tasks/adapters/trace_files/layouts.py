"""The trace formats as a table: which fields name the stamp and the lengths, and in which unit.

Adding a format whose rows are one request each means adding a row here, not a branch.
"""

from dataclasses import dataclass
from typing import Literal

from tasks.adapters.trace_files.options import TimeUnit

StampKind = Literal["iso", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One row format. Field names of a CSV are compared in lower case, of JSON as they are."""

    name: str
    container: Literal["csv", "jsonl"]
    stamp: str
    prompt: str
    output: str
    blocks: str | None = None
    block_tokens: str | None = None
    session: str | None = None
    unit: TimeUnit = "auto"
    needs: tuple[str, ...] = ()
    source: str


LAYOUTS: tuple[Layout, ...] = (
    Layout(
        name="azure-csv",
        container="csv",
        stamp="timestamp",
        prompt="contexttokens",
        output="generatedtokens",
        source="Azure/AzurePublicDataset, LLM inference traces 2023 and 2024",
    ),
    Layout(
        name="burstgpt-csv",
        container="csv",
        stamp="timestamp",
        prompt="request tokens",
        output="response tokens",
        session="session id",
        unit="s",
        source="HPMLL/BurstGPT; the session column exists in the third file only",
    ),
    Layout(
        name="retune-csv",
        container="csv",
        stamp="arrival_s",
        prompt="prompt_tokens",
        output="output_tokens",
        session="session",
        unit="s",
        source="the columns of our own JSONL",
    ),
    Layout(
        name="retune-jsonl",
        container="jsonl",
        stamp="arrival_s",
        prompt="prompt_tokens",
        output="output_tokens",
        blocks="prefix_blocks",
        block_tokens="prefix_block_tokens",
        session="session",
        unit="s",
        source="written by write_trace",
    ),
    Layout(
        name="qwen-bailian-jsonl",
        container="jsonl",
        stamp="timestamp",
        prompt="input_length",
        output="output_length",
        blocks="hash_ids",
        unit="s",
        needs=("chat_id", "parent_chat_id"),
        source="alibaba-edu/qwen-bailian-usagetraces-anon, 16-token blocks, seconds",
    ),
    Layout(
        name="timed-trace-jsonl",
        container="jsonl",
        stamp="timestamp",
        prompt="input_length",
        output="output_length",
        blocks="hash_ids",
        source="Mooncake FAST'25 (milliseconds, 512-token blocks) and what "
        "`vllm bench serve --dataset-name timed_trace` reads (seconds unless told)",
    ),
)


def layout_for(fields: tuple[str, ...], container: str) -> Layout | None:
    """Return the first layout whose fields are all present, or None."""
    present = {field.strip().lower() for field in fields} if container == "csv" else set(fields)
    for layout in LAYOUTS:
        wanted = {layout.stamp, layout.prompt, layout.output, *layout.needs}
        if layout.container == container and wanted <= present:
            return layout
    return None


def known_formats() -> str:
    """Return the formats and their fields in one line, for error messages."""
    rows = (f"{row.name} ({row.stamp}, {row.prompt}, {row.output})" for row in LAYOUTS)
    servegen = "servegen folder (chunk-*-trace.csv + chunk-*-dataset.json)"
    return "; ".join((*rows, servegen, "vLLM's request log or a stamped access log"))
