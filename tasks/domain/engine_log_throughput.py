"""The periodic throughput line of vLLM, from V0 to 0.32, found by labels in any order.

An unknown label is kept, a missing one is None; neither is an error.
"""

import math
import re
from dataclasses import dataclass

from tasks.domain.engine_log import log_lines

_MARK = "Avg prompt throughput:"
_ENGINE = re.compile(r"Engine (\d+): ")
_FETCH = re.compile(
    r",? ?KV fetch: (\d+) waiting to start, (\d+) in progress, (\d+) completed waiting"
)
_KV = re.compile(r"(\w+) KV cache usage")
_NUMBER = re.compile(r"-?(?:\d[\d,]*(?:\.\d+)?|nan|inf)", re.IGNORECASE)

_COUNTS = {
    "Running": "running",
    "Waiting": "waiting",
    "Pending": "waiting",
    "Swapped": "swapped",
    "Deferred": "deferred",
    "Preemptions": "preemptions",
}
_RATES = {
    "Avg prompt throughput": "prompt_tok_s",
    "Avg generation throughput": "generation_tok_s",
}
_SHARES = {
    "Prefix cache hit rate": "prefix_hit_frac",
    "External prefix cache hit rate": "external_prefix_hit_frac",
    "MM cache hit rate": "mm_cache_hit_frac",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFetch:
    """Requests whose KV blocks are fetched from elsewhere, by stage."""

    waiting: int
    in_progress: int
    completed_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRow:
    """One throughput line; every share is 0..1, and None means that the line did not say it.

    waiting includes deferred (0.24 and later); V0 calls it Pending. kv_usage_frac is the use of
    the KV cache on kv_device; swap_usage_frac exists in V0 only, whose second usage is swap space.
    flags: NEGATIVE_THROUGHPUT. extra: labels that this reader does not know, as printed.
    """

    engine: int | None = None
    prompt_tok_s: float | None = None
    generation_tok_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    swapped: int | None = None
    deferred: int | None = None
    preemptions: int | None = None
    kv_usage_frac: float | None = None
    kv_device: str | None = None
    swap_usage_frac: float | None = None
    prefix_hit_frac: float | None = None
    external_prefix_hit_frac: float | None = None
    mm_cache_hit_frac: float | None = None
    kv_fetch: KvFetch | None = None
    flags: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


def throughput_rows(text: str) -> tuple[ThroughputRow, ...]:
    """Return a row for every line that reports average throughput, in order."""
    return tuple(_row(line.text) for line in log_lines(text) if _MARK in line.text)


def _row(text: str) -> ThroughputRow:
    engine = _ENGINE.search(text)
    body = text[text.index(_MARK) :].rstrip(". ")
    fetch = _FETCH.search(body)
    if fetch is not None:
        body = body[: fetch.start()] + body[fetch.end() :]
    counts: dict[str, int] = {}
    rates: dict[str, float] = {}
    usages: list[tuple[str, float]] = []
    extra: list[tuple[str, str]] = []
    for part in re.split(r", (?=[A-Za-z])", body):
        label, _, value = part.partition(": ")
        number = _number(value)
        kv = _KV.fullmatch(label)
        if number is None:
            extra.append((label, value))
        elif label in _COUNTS:
            counts[_COUNTS[label]] = int(number)
        elif label in _RATES:
            rates[_RATES[label]] = number
        elif label in _SHARES:
            rates[_SHARES[label]] = number / 100.0
        elif kv is not None:
            usages.append((kv[1], number / 100.0))
        else:
            extra.append((label, value))
    negative = any(rates.get(name, 0.0) < 0.0 for name in _RATES.values())
    return ThroughputRow(
        engine=None if engine is None else int(engine[1]),
        kv_device=usages[0][0] if usages else None,
        kv_usage_frac=usages[0][1] if usages else None,
        swap_usage_frac=usages[1][1] if len(usages) > 1 else None,
        kv_fetch=None if fetch is None else _fetch(fetch),
        flags=("NEGATIVE_THROUGHPUT",) if negative else (),
        extra=tuple(extra),
        prompt_tok_s=rates.get("prompt_tok_s"),
        generation_tok_s=rates.get("generation_tok_s"),
        prefix_hit_frac=rates.get("prefix_hit_frac"),
        external_prefix_hit_frac=rates.get("external_prefix_hit_frac"),
        mm_cache_hit_frac=rates.get("mm_cache_hit_frac"),
        running=counts.get("running"),
        waiting=counts.get("waiting"),
        swapped=counts.get("swapped"),
        deferred=counts.get("deferred"),
        preemptions=counts.get("preemptions"),
    )


def _number(value: str) -> float | None:
    """Return the finite number that a value starts with, else None."""
    match = _NUMBER.match(value)
    if match is None:
        return None
    number = float(match[0].replace(",", ""))
    return number if math.isfinite(number) else None


def _fetch(match: re.Match[str]) -> KvFetch:
    waiting, in_progress, completed = (int(group) for group in match.groups())
    return KvFetch(waiting=waiting, in_progress=in_progress, completed_waiting=completed)
