"""Rules that say when a measurement must not be believed, or is believed with a remark.

Knows limits and sentences as rows of one table; adding a rule is adding a row. A rule whose facts
were not measured (None) does not fire: unknown is no proof of a fault.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.request_record import ClientReport

SEND_LAG_LIMIT_S = 0.050  # one mean gap between requests at 20 req/s: later, order is lost
RECEIVE_ERROR_LIMIT_S = 0.020  # own transport 1 ms, aiohttp 8.5 ms, httpx 344 ms at 12,800 tok/s
CLIENT_SHARE_OF_TTFT_FRAC = (
    0.10  # a client error of 10 % of TTFT p50 is as large as the gains we look for
)
CLIENT_CPU_LIMIT_FRAC = 0.90  # one event loop above this has no slack left for a burst
ERROR_RATE_LIMIT_FRAC = 0.01  # case d-01: above it no latency makes a trial the best
REUSE_MARGIN_FRAC = 0.01  # vLLM warns at the same 1 % of hits on random data (PR 53920)
LOAD_REACHED_FRAC = 0.90  # case d-08: peak running + waiting against the concurrency asked for
TOKEN_DRIFT_LIMIT_FRAC = 0.02  # case d-07: tokens asked for against the server's usage

CLIENT_ERROR_CODES = frozenset({"CLIENT_LIMIT", "CANCELLED"})
WORKLOAD_ERROR_CODES = frozenset({"CONTEXT_LENGTH_EXCEEDED"})
BLOCKS_WINNING = frozenset({"ERROR_RATE"})
LATE_CLIENT = frozenset({"CLIENT_SEND_LATE", "CLIENT_RECEIVE_LATE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A remark on a measurement; ``invalid`` means that it must not be believed.

    A code of BLOCKS_WINNING is believed, and keeps its arm from winning all the same.
    """

    code: str
    sentence: str
    invalid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What /metrics and /v1/models said around the load; None is not known.

    hit_frac: prefix-cache hits / queries of the window. expected_hit_frac: the trace's own reuse,
    0 where it has none. peak_requests: largest running + waiting seen. counter_resets: names of
    counters that fell during the load. model_asked, model_seen: the identity before and after.
    """

    hit_frac: float | None = None
    expected_hit_frac: float | None = None
    peak_requests: int | None = None
    counter_resets: tuple[str, ...] = ()
    model_asked: str | None = None
    model_seen: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidityFacts:
    """Everything that the rules look at; seconds, shares 0..1, None where not measured.

    errors: (code, count), sorted. e2e_tail_s: E2E p99, or the maximum where p99 is not covered.
    """

    load_point: LoadPoint
    client: ClientReport
    server: ServerFacts
    n_requests: int
    n_ok: int
    errors: tuple[tuple[str, int], ...]
    ttft_p50_s: float | None
    prompt_drift_frac: float | None
    completion_drift_frac: float | None
    e2e_tail_s: float | None
    window_s: float
    n_windows: int
    n_windows_diverged: int

    def count(self, codes: frozenset[str]) -> int:
        """Return how many requests failed with one of these codes."""
        return sum(n for code, n in self.errors if code in codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidityRule:
    """One row: a code, whether it makes the run INVALID, and its sentence where it fires."""

    code: str
    invalid: bool
    sentence: Callable[[ValidityFacts], str | None]


def window_hit_frac(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    """Return hits / queries between two readings of (queries, hits); None without a query.

    Raises:
        MeasurementInvalidError: COUNTER_RESET, where a counter fell.
    """
    queries, hits = after[0] - before[0], after[1] - before[1]
    if queries < 0 or hits < 0:
        raise MeasurementInvalidError(
            f"prefix-cache counters went from {before} to {after}; needed counters that only grow; "
            "the server restarted during the load: measure again",
            code="COUNTER_RESET",
        )
    return hits / queries if queries > 0 else None


def judge_validity(facts: ValidityFacts) -> tuple[Flag, ...]:
    """Return the flags of every rule that fires, in the table's order, then the client's own."""
    fired = [(rule, rule.sentence(facts)) for rule in RULES]
    flags = [
        Flag(code=rule.code, sentence=sentence, invalid=rule.invalid)
        for rule, sentence in fired
        if sentence is not None
    ]
    own = [Flag(code=code, sentence=text, invalid=True) for code, text in facts.client.limits]
    return (*flags, *own)


def client_was_late(flags: tuple[Flag, ...]) -> bool:
    """Tell whether nothing but a late client makes a measurement INVALID.

    On a shared host that passes, so measuring once more may cure it; every other reason would
    come again.
    """
    codes = {flag.code for flag in flags if flag.invalid}
    return bool(codes) and codes <= LATE_CLIENT


def _no_success(f: ValidityFacts) -> str | None:
    if f.n_ok > 0:
        return None
    return f"0 of n={f.n_requests} requests succeeded: no latency exists; errors {dict(f.errors)}"


def _late(name: str, value_s: float | None, limit_s: float, f: ValidityFacts) -> str | None:
    share = None if f.ttft_p50_s is None else CLIENT_SHARE_OF_TTFT_FRAC * f.ttft_p50_s
    limit = limit_s if share is None else min(limit_s, share)
    if value_s is None or value_s <= limit:
        return None
    return (
        f"{name} p99 {1e3 * value_s:.1f} ms of n={f.client.requests} requests, allowed "
        f"{1e3 * limit:.1f} ms (the smaller of {1e3 * limit_s:.0f} ms and "
        f"{100 * CLIENT_SHARE_OF_TTFT_FRAC:.0f} % of TTFT p50): the client was late, "
        "not the server slow; use more workers"
    )


def _busy(f: ValidityFacts) -> str | None:
    if f.client.cpu_frac is None or f.client.cpu_frac <= CLIENT_CPU_LIMIT_FRAC:
        return None
    return (
        f"the busiest of {f.client.workers} client workers used {f.client.cpu_frac:.2f} of a core "
        f"(n={f.client.requests} requests), advised at most {CLIENT_CPU_LIMIT_FRAC}"
    )


def _client_failures(f: ValidityFacts) -> str | None:
    n = f.count(CLIENT_ERROR_CODES)
    return f"{n} of n={f.n_requests} requests failed in the client itself" if n else None


def _workload_errors(f: ValidityFacts) -> str | None:
    n = f.count(WORKLOAD_ERROR_CODES)
    if not n:
        return None
    return (
        f"{n} of n={f.n_requests} requests were longer than the model's context: the workload is "
        "wrong, not the server; filter the trace with the smallest max_model_len of the space"
    )


def _error_rate(f: ValidityFacts) -> str | None:
    failed = f.n_requests - f.n_ok
    if f.n_requests == 0 or failed / f.n_requests <= ERROR_RATE_LIMIT_FRAC:
        return None
    return (
        f"{failed} of n={f.n_requests} requests failed ({failed / f.n_requests:.2%}, allowed "
        f"{ERROR_RATE_LIMIT_FRAC:.0%}): this arm cannot win, however good its latencies"
    )


def _warm_cache(f: ValidityFacts) -> str | None:
    hit, expected = f.server.hit_frac, f.server.expected_hit_frac
    if hit is None or expected is None:
        return None
    if hit < REUSE_MARGIN_FRAC or (expected > 0 and hit <= expected + REUSE_MARGIN_FRAC):
        return None
    return (
        f"prefix-cache hits {hit:.1%} of the window's queries (n={f.n_requests} requests), the "
        f"trace's own reuse is {expected:.1%}: prompts of an earlier run were reused; "
        "use a new salt for every run or a fresh server"
    )


def _reuse_unknown(f: ValidityFacts) -> str | None:
    hit = f.server.hit_frac
    if f.server.expected_hit_frac is not None or hit is None or hit < REUSE_MARGIN_FRAC:
        return None
    return (
        f"prefix-cache hits {hit:.1%} of the window's queries (n={f.n_requests} requests), and "
        "nobody said how much the trace itself reuses: state expected_hit_frac"
    )


def _load_not_reached(f: ValidityFacts) -> str | None:
    target, peak = f.load_point.concurrency, f.server.peak_requests
    if f.load_point.kind is not LoadKind.CLOSED or target is None or peak is None:
        return None
    if peak >= LOAD_REACHED_FRAC * target:
        return None
    return (
        f"the server saw at most {peak} requests at once, {target} were asked for "
        f"(n={f.n_requests} requests): the client or a proxy holds requests back"
    )


def _counter_reset(f: ValidityFacts) -> str | None:
    names = f.server.counter_resets
    if not names:
        return None
    return f"{len(names)} counters fell during the load ({', '.join(names)}): the server restarted"


def _identity(f: ValidityFacts) -> str | None:
    asked, seen = f.server.model_asked, f.server.model_seen
    if asked is None or seen is None or asked == seen:
        return None
    return f"the server serves {seen!r}, {asked!r} was to be measured: another server answered"


def _token_drift(f: ValidityFacts) -> str | None:
    drifts = (("prompt", f.prompt_drift_frac), ("completion", f.completion_drift_frac))
    far = [
        f"{name} tokens {drift:+.1%}"
        for name, drift in drifts
        if drift is not None and abs(drift) > TOKEN_DRIFT_LIMIT_FRAC
    ]
    if not far:
        return None
    return f"{' and '.join(far)} against what was asked (n={f.n_ok} successes), advised within 2 %"


def _short_window(f: ValidityFacts) -> str | None:
    if f.e2e_tail_s is None or f.window_s >= f.e2e_tail_s:
        return None
    return (
        f"windows of {f.window_s:.1f} s are shorter than the E2E tail of "
        f"{f.e2e_tail_s:.1f} s (n={f.n_ok}): a comparison merges them into longer ones"
    )


def _diverged(f: ValidityFacts) -> str | None:
    if not f.n_windows_diverged:
        return None
    return (
        f"requests in flight kept growing in {f.n_windows_diverged} of {f.n_windows} windows "
        f"(n={f.n_requests} requests): the engine did not keep up there"
    )


RULES: tuple[ValidityRule, ...] = (
    ValidityRule(code="NO_SUCCESSFUL_REQUESTS", invalid=True, sentence=_no_success),
    ValidityRule(
        code="CLIENT_SEND_LATE",
        invalid=True,
        sentence=lambda f: _late("send lag", f.client.send_lag_p99_s, SEND_LAG_LIMIT_S, f),
    ),
    ValidityRule(
        code="CLIENT_RECEIVE_LATE",
        invalid=True,
        sentence=lambda f: _late(
            "receive-stamp error", f.client.receive_error_p99_s, RECEIVE_ERROR_LIMIT_S, f
        ),
    ),
    ValidityRule(code="CLIENT_FAILURES", invalid=True, sentence=_client_failures),
    ValidityRule(code="WORKLOAD_ERROR", invalid=True, sentence=_workload_errors),
    ValidityRule(code="WARM_PREFIX_CACHE", invalid=True, sentence=_warm_cache),
    ValidityRule(code="LOAD_NOT_REACHED", invalid=True, sentence=_load_not_reached),
    ValidityRule(code="COUNTER_RESET", invalid=True, sentence=_counter_reset),
    ValidityRule(code="SERVER_IDENTITY_MISMATCH", invalid=True, sentence=_identity),
    ValidityRule(code="PREFIX_REUSE_UNKNOWN", invalid=False, sentence=_reuse_unknown),
    ValidityRule(code="ERROR_RATE", invalid=False, sentence=_error_rate),
    ValidityRule(code="CLIENT_BUSY", invalid=False, sentence=_busy),
    ValidityRule(code="TOKEN_DRIFT", invalid=False, sentence=_token_drift),
    ValidityRule(code="WINDOW_TOO_SHORT", invalid=False, sentence=_short_window),
    ValidityRule(code="QUEUE_DIVERGES", invalid=False, sentence=_diverged),
)
