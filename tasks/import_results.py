"""The verb that reads other tools' results: `vllm bench serve` and guidellm."""

from pathlib import Path

from tasks.adapters.bench_results.guidellm import guidellm_results, is_guidellm
from tasks.adapters.bench_results.vllm_bench import BenchResult, bench_result, read_result_file


def import_results(path: Path) -> tuple[BenchResult, ...]:
    """Return the results in a file, recognised by content; a guidellm report may hold several.

    Raises:
        MeasurementInvalidError: BENCH_RESULT_FORMAT, naming the file and what is wrong.
    """
    data = read_result_file(path)
    if is_guidellm(data):
        return guidellm_results(data, source=str(path))
    return (bench_result(data, source=str(path)),)
