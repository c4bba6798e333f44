"""``retune bench-import``: other tools' results in one table, with what must not be believed."""

from collections.abc import Sequence
from pathlib import Path

from flows.output import number, print_json, print_lines, print_table
from tasks.adapters.bench_results.vllm_bench import BenchResult
from tasks.import_results import import_results

COLUMNS = (
    "file", "completed", "failed", "req/s", "goodput req/s", "tokens/s",
    "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "E2E p99", "flags",
)  # fmt: skip
LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "e2e_p99_ms")


def bench_import_command(files: Sequence[Path], *, as_json: bool) -> int:
    """Print the results of all files; 1 where one of them must not be believed."""
    results = [result for file in files for result in import_results(file)]
    if as_json:
        print_json({"results": results, "metrics": [result.to_metrics() for result in results]})
    else:
        print_table("imported results", COLUMNS, (_row(result) for result in results))
        print_lines(
            f"{result.source} {flag.code}{' (INVALID)' if flag.invalid else ''}: {flag.sentence}"
            for result in results
            for flag in result.flags
        )
    return 1 if any(result.invalid for result in results) else 0


def _row(result: BenchResult) -> tuple[str, ...]:
    latencies = dict(result.latencies)
    return (
        Path(result.source).name,
        str(result.completed),
        "-" if result.failed is None else str(result.failed),
        number(result.request_req_s),
        number(result.goodput_req_s),
        number(result.output_tok_s, 1),
        *(number(latencies.get(name), 1, " ms") for name in LATENCIES),
        ", ".join(flag.code for flag in result.flags) or "-",
    )
