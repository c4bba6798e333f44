"""Result files of ``vllm bench serve``, read with distrust.

vLLM writes zeros where nothing was measured (``np.mean(x or 0)``, vLLM 0.24-0.32,
benchmarks/serve.py): a file without a success looks like the fastest run ever. Knows that
format only; our own measurements never pass through here.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.validity import ERROR_RATE_LIMIT_FRAC, Flag

LATENCIES = ("ttft", "tpot", "itl", "e2el")
OUR_NAMES = {"e2el": "e2e"}
STATISTICS = ("mean", "median", "p50", "p90", "p95", "p99")
OUR_STATISTICS = {"median": "p50"}
P99_NEEDS = 299  # 0.99 ** 299 < 5 %: below it the sample maximum does not bound the p99


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """A foreign result; rates per second, latencies in milliseconds, None where not measured.

    failed: None where the file does not say. goodput_req_s: None where no SLO was given to the
    tool. latencies: (name such as ``ttft_p99_ms``, value); empty without a success.
    """

    source: str
    duration_s: float
    completed: int
    failed: int | None
    request_req_s: float | None
    output_tok_s: float | None
    goodput_req_s: float | None
    latencies: tuple[tuple[str, float], ...]
    flags: tuple[Flag, ...]

    @property
    def invalid(self) -> bool:
        """Tell whether the result must not be believed."""
        return any(flag.invalid for flag in self.flags)

    @property
    def error_rate_frac(self) -> float | None:
        """Failed requests / all requests, None where the file does not count failures."""
        if self.failed is None or self.completed + self.failed == 0:
            return None
        return self.failed / (self.completed + self.failed)

    def to_metrics(self) -> dict[str, float]:
        """Return flat metrics; what was not measured is left out."""
        found: dict[str, float | None] = {
            "bench/completed": float(self.completed),
            "bench/failed": None if self.failed is None else float(self.failed),
            "bench/error_rate_frac": self.error_rate_frac,
            "bench/achieved_req_s": self.request_req_s,
            "bench/output_tok_s": self.output_tok_s,
            "bench/goodput_req_s": self.goodput_req_s,
        }
        found.update({f"latency/{name}": value for name, value in self.latencies})
        return {name: value for name, value in found.items() if value is not None}


def read_bench_result(path: Path) -> BenchResult:
    """Read one result file of ``vllm bench serve --save-result``.

    Raises:
        MeasurementInvalidError: BENCH_RESULT_FORMAT, where the file is not one JSON object with
            the counts that every version writes.
    """
    return bench_result(read_result_file(path), source=str(path))


def read_result_file(path: Path) -> dict[str, object]:
    """Return the JSON object in a result file of any tool.

    Raises:
        MeasurementInvalidError: BENCH_RESULT_FORMAT, where the file is not one JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _malformed(
            str(path), f"not JSON ({error}); one file a run: leave --append-result out"
        ) from error
    except OSError as error:
        raise _malformed(str(path), f"it cannot be read ({error}); check the path") from error
    if not isinstance(data, dict):
        raise _malformed(str(path), f"a JSON {type(data).__name__}; needed an object")
    return data


def bench_result(data: Mapping[str, object], *, source: str) -> BenchResult:
    """Return the result in ``data``, without the numbers that were never measured.

    Raises:
        MeasurementInvalidError: BENCH_RESULT_FORMAT, for a count or a duration that cannot be.
    """
    completed = _count(data, "completed", source)
    if completed is None:
        raise _malformed(source, "no 'completed'; needed the count of successes")
    failed = _failed(data, completed, source)
    duration = _number(data, "duration", source)
    if duration is None or duration <= 0:
        raise _malformed(source, f"duration={duration}; needed seconds above 0")
    latencies, flags = _latencies(data, completed, source)
    nothing = completed == 0
    return BenchResult(
        source=source,
        duration_s=duration,
        completed=completed,
        failed=failed,
        request_req_s=None if nothing else _number(data, "request_throughput", source),
        output_tok_s=None if nothing else _number(data, "output_throughput", source),
        goodput_req_s=_number(data, "request_goodput", source),
        latencies=latencies,
        flags=(*count_flags(completed, failed, data.get("total_output_tokens")), *flags),
    )


def _failed(data: Mapping[str, object], completed: int, source: str) -> int | None:
    """Return the failures; older files count none, so the prompts that were not completed."""
    failed = _count(data, "failed", source)
    prompts = _count(data, "num_prompts", source)
    if failed is None and prompts is not None:
        return max(0, prompts - completed)
    return failed


def count_flags(completed: int, failed: int | None, output_tokens: object) -> tuple[Flag, ...]:
    """Return what the counts forbid: no success, successes without a token, too many errors."""
    flags = []
    total = completed + (failed or 0)
    if completed == 0:
        said = f"0 of n={total} requests succeeded: the latencies in the file are not measurements"
        flags.append(Flag(code="NO_SUCCESSFUL_REQUESTS", sentence=said, invalid=True))
    elif output_tokens == 0:
        said = f"n={completed} successes carried 0 output tokens: the streams were empty"
        flags.append(Flag(code="EMPTY_STREAM", sentence=said, invalid=True))
    if 0 < completed < P99_NEEDS:
        said = (
            f"p99 of n={completed} is the sample's largest values, not the tail (needs {P99_NEEDS})"
        )
        flags.append(Flag(code="TAIL_NOT_COVERED", sentence=said, invalid=False))
    if failed and failed / total > ERROR_RATE_LIMIT_FRAC:
        said = (
            f"{failed} of n={total} requests failed ({failed / total:.2%}, allowed "
            f"{ERROR_RATE_LIMIT_FRAC:.0%}): this run cannot be the best"
        )
        flags.append(Flag(code="ERROR_RATE", sentence=said, invalid=False))
    return tuple(flags)


def _latencies(
    data: Mapping[str, object], completed: int, source: str
) -> tuple[tuple[tuple[str, float], ...], tuple[Flag, ...]]:
    """Return the latencies above 0; a TTFT or E2E of 0 ms with successes is a fault."""
    if completed == 0:
        return (), ()
    found: dict[str, float] = {}
    zeros: list[str] = []
    for latency in LATENCIES:
        for statistic in STATISTICS:
            key = f"{statistic}_{latency}_ms"
            value = _number(data, key, source)
            if value is not None and value > 0:
                name = OUR_NAMES.get(latency, latency)
                found[f"{name}_{OUR_STATISTICS.get(statistic, statistic)}_ms"] = value
            elif value is not None and latency in ("ttft", "e2el"):
                zeros.append(key)
    if not zeros:
        return tuple(found.items()), ()
    said = f"{', '.join(zeros)} is 0 ms over n={completed} successes: no first token was seen"
    return tuple(found.items()), (Flag(code="ZERO_LATENCY", sentence=said, invalid=True),)


def _number(data: Mapping[str, object], key: str, source: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _malformed(source, f"{key}={value!r}; needed a finite number or null")
    return float(value)


def _count(data: Mapping[str, object], key: str, source: str) -> int | None:
    value = _number(data, key, source)
    if value is None:
        return None
    if value < 0 or value != int(value):
        raise _malformed(source, f"{key}={value}; needed a whole number of at least 0")
    return int(value)


def _malformed(source: str, what: str) -> MeasurementInvalidError:
    return MeasurementInvalidError(
        f"{source} is no result of 'vllm bench serve --save-result': {what}",
        code="BENCH_RESULT_FORMAT",
    )
