"""Result files of guidellm, read with distrust.

Read in guidellm 0.8.1 (benchmark/schemas): a report holds one benchmark a load. A value that a
request does not have is counted as 0.0 there (``req.time_to_first_token_ms or 0.0``), and its time
per output token counts the first token, so that TPOT here is its inter-token latency.
"""

from collections.abc import Mapping

from tasks.adapters.bench_results.vllm_bench import BenchResult, count_flags
from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.validity import Flag

# Our name, guidellm's, and milliseconds in one of its units.
LATENCIES = (
    ("ttft", "time_to_first_token_ms", 1.0),
    ("tpot", "inter_token_latency_ms", 1.0),
    ("e2e", "request_latency", 1_000.0),
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
TPOT_DEFINITION = Flag(
    code="TPOT_DEFINITION",
    sentence="guidellm's time_per_output_token_ms is (last token - request start) / n and holds "
    "the first token; TPOT here is its inter_token_latency_ms, (last - first) / (n - 1), weighted "
    "by tokens",
    invalid=False,
)

Json = Mapping[str, object]


def is_guidellm(data: Json) -> bool:
    """Tell whether a JSON object is a guidellm report."""
    return isinstance(data.get("benchmarks"), list) and "metadata" in data


def guidellm_results(data: Json, *, source: str) -> tuple[BenchResult, ...]:
    """Return one result a benchmark of the report, in its order.

    Raises:
        MeasurementInvalidError: BENCH_RESULT_FORMAT, for a report without benchmarks or one whose
            keys are not those of a version that this reader knows.
    """
    benchmarks = data.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise _malformed(source, "it holds no benchmark: the run ended before the first was done")
    return tuple(
        _result(benchmark, source=f"{source}#{number}")
        for number, benchmark in enumerate(benchmarks)
        if isinstance(benchmark, dict)
    )


def _result(benchmark: Json, *, source: str) -> BenchResult:
    metrics = _part(benchmark, "metrics", source)
    totals = _part(metrics, "request_totals", source)
    completed = int(_number(totals, "successful") or 0)
    failed = int(_number(totals, "errored") or 0)
    cut_off = int(_number(totals, "incomplete") or 0)
    duration = _duration(benchmark, source)
    tokens = _statistic(metrics, "output_token_count", "total_sum") if completed else None
    latencies, flags = _latencies(metrics) if completed else ((), ())
    if cut_off:
        flags = (*flags, _incomplete(cut_off, completed + failed))
    return BenchResult(
        source=source,
        duration_s=duration,
        completed=completed,
        failed=failed,
        request_req_s=completed / duration if completed else None,
        output_tok_s=None if tokens is None else tokens / duration,
        goodput_req_s=_goodput(metrics),
        latencies=latencies,
        flags=(*count_flags(completed, failed, tokens), *flags),
    )


def _latencies(metrics: Json) -> tuple[tuple[tuple[str, float], ...], tuple[Flag, ...]]:
    found: list[tuple[str, float]] = []
    zeros: list[str] = []
    for ours, theirs, scale in LATENCIES:
        for statistic in STATISTICS:
            value = _statistic(metrics, theirs, statistic)
            if value is not None and value > 0:
                found.append((f"{ours}_{statistic}_ms", scale * value))
        least = _statistic(metrics, theirs, "min")
        if least == 0 and ours != "tpot":  # one token has no TPOT, and weighs nothing in it
            zeros.append(theirs)
    if not zeros:
        return tuple(found), (TPOT_DEFINITION,)
    said = f"{', '.join(zeros)} holds 0.0 for requests without that time: its percentiles are low"
    flag = Flag(code="ZERO_LATENCY", sentence=said, invalid=True)
    return tuple(found), (TPOT_DEFINITION, flag)


def _incomplete(cut_off: int, ended: int) -> Flag:
    said = (
        f"{cut_off} requests were cut off at the end of the window and are in no latency "
        f"(n={ended} ended): slow requests are the likelier to be cut off"
    )
    return Flag(code="INCOMPLETE_LEFT_OUT", sentence=said, invalid=False)


def _goodput(metrics: Json) -> float | None:
    if metrics.get("slo_attainment") is None:
        return None
    return _statistic(metrics, "request_goodput", "mean")


def _duration(benchmark: Json, source: str) -> float:
    duration = _number(benchmark, "duration")
    if duration is None or duration <= 0:
        raise _malformed(source, f"duration={duration}; needed seconds above 0")
    return duration


def _statistic(metrics: Json, name: str, statistic: str) -> float | None:
    """Return a statistic over the successful requests, None where there is none."""
    summary = metrics.get(name)
    successful = summary.get("successful") if isinstance(summary, dict) else None
    if not isinstance(successful, dict) or not successful.get("count"):
        return None
    percentiles = successful.get("percentiles")
    inside = percentiles if statistic.startswith("p") and isinstance(percentiles, dict) else None
    return _number(successful if inside is None else inside, statistic)


def _part(data: Json, key: str, source: str) -> Json:
    part = data.get(key)
    if not isinstance(part, dict):
        raise _malformed(source, f"no {key}; known is the report of guidellm 0.8")
    return part


def _number(data: Json, key: str) -> float | None:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _malformed(source: str, what: str) -> MeasurementInvalidError:
    return MeasurementInvalidError(
        f"{source} is no guidellm report that can be read: {what}", code="BENCH_RESULT_FORMAT"
    )
