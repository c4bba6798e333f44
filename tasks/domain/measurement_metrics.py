"""A measurement as flat metrics, and the formula of each in words.

Knows the names under which a tracker shows the numbers. A number that does not exist is left
out: never 0, never NaN.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.measurement import Measurement

_LATENCY = "seconds from the due time of a successful request"

FORMULAS: Mapping[str, str] = MappingProxyType(
    {
        "offered_req_s": "requests due in the window / window seconds (warm-up left out)",
        "achieved_req_s": "successes whose last token came inside the window / window seconds",
        "goodput_req_s": "requests due in the window that succeeded and kept every limit of the "
        "SLO, whenever they ended / window seconds",
        "attainment_frac": "good requests / all requests due in the window; a failed one is not "
        "good; 95 % Wilson interval on requests / design effect of the windows",
        "error_rate_frac": "failed requests / requests due in the window",
        "output_tok_s": "completion tokens of successes that arrived inside the window / seconds",
        "input_tok_s": "prompt tokens of successes whose first token came inside it / seconds",
        "partial_tokens": "completion tokens of failed requests; in no rate",
        "mean_concurrency": "request-seconds between send and last token inside the window / "
        "window seconds (Little's law: rate x mean time in the system)",
        "ttft": f"{_LATENCY} to its first content, reasoning or tool-call text",
        "ttft_from_send": "the same from the moment its bytes were written",
        "tpot": "(last token - first token) / (tokens - 1); none for one token",
        "itl": "gap per token: a chunk of k tokens is k gaps of (t - previous t) / k",
        "e2e": f"{_LATENCY} to its last token; the usage chunk does not count",
        "percentile": "linear between order statistics; interval: binomial order statistics; "
        "absent where the sample maximum does not bound it (needs n of 6, 29, 299 for p50, 90, 99)",
        "drift_frac": "tokens by the server's usage / tokens asked for - 1, over successes",
        "hit_frac": "prefix-cache hit tokens / queried tokens, difference over the window",
    }
)


def to_metrics(measurement: Measurement) -> dict[str, float]:
    """Return the measurement as flat metrics (``bench/...``, ``latency/..._ms``), None left out.

    Latency percentiles come in milliseconds with ``_low_ms`` and ``_high_ms`` beside them.

    Raises:
        MeasurementInvalidError: for NaN or infinity; a tracker would store it as a huge number.
    """
    m = measurement
    found: dict[str, float | None] = {
        "bench/requests": float(m.n_requests),
        "bench/completed": float(m.n_ok),
        "bench/failed": float(m.n_requests - m.n_ok),
        "bench/error_rate_frac": m.error_rate_frac,
        "bench/offered_req_s": m.offered_req_s,
        "bench/achieved_req_s": m.achieved_req_s,
        "bench/output_tok_s": m.output_tok_s,
        "bench/input_tok_s": m.input_tok_s,
        "bench/partial_tokens": float(m.partial_tokens),
        "bench/goodput_req_s": m.goodput_req_s,
        "bench/attainment_frac": m.attainment_frac,
        "bench/attainment_low_frac": m.attainment_low_frac,
        "bench/attainment_high_frac": m.attainment_high_frac,
        "bench/mean_concurrency": m.mean_concurrency,
        "bench/prefix_hit_frac": m.hit_frac,
        "bench/prompt_drift_frac": m.prompt_drift_frac,
        "bench/completion_drift_frac": m.completion_drift_frac,
        "bench/windows_diverged": float(sum(w.diverged for w in m.windows)),
        "client/send_lag_p99_ms": _ms(m.client.send_lag_p99_s),
        "client/receive_error_p99_ms": _ms(m.client.receive_error_p99_s),
        "client/cpu_frac": m.client.cpu_frac,
    }
    for code, count in m.errors:
        found[f"errors/{code.lower()}"] = float(count)
    for latency in (m.ttft, m.ttft_from_send, m.tpot, m.itl, m.e2e):
        found[f"latency/{latency.name}_mean_ms"] = _ms(latency.mean_s)
        for p in latency.percentiles:
            name = f"latency/{latency.name}_p{100 * p.quantile:.0f}"
            found[f"{name}_ms"] = _ms(p.value_s)
            found[f"{name}_low_ms"] = _ms(p.low_s)
            found[f"{name}_high_ms"] = _ms(p.high_s)
    return finite_metrics({name: value for name, value in found.items() if value is not None})


def finite_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics unchanged when every one is finite.

    Raises:
        MeasurementInvalidError: naming those that are NaN or infinite.
    """
    bad = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if bad:
        raise MeasurementInvalidError(
            f"metrics {bad} are not finite; needed numbers: leave out what was not measured",
            code="METRIC_NOT_FINITE",
        )
    return dict(metrics)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
