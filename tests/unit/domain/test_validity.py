"""Each rule fires at its limit, not before it, and never on what was not measured."""

from dataclasses import replace

import pytest

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.request_record import ClientReport
from tasks.domain.validity import (
    RULES,
    ServerFacts,
    ValidityFacts,
    judge_validity,
    window_hit_frac,
)

CLIENT = ClientReport(
    requests=1000,
    send_lag_p50_s=0.001,
    send_lag_p99_s=0.002,
    receive_error_p99_s=0.001,
    cpu_frac=0.3,
    workers=2,
    wall_s=60.0,
)
CLEAN = ValidityFacts(
    load_point=LoadPoint(kind=LoadKind.OPEN, duration_s=60.0, rate_scale=1.0),
    client=CLIENT,
    server=ServerFacts(hit_frac=0.0, expected_hit_frac=0.0),
    n_requests=1000,
    n_ok=1000,
    errors=(),
    ttft_p50_s=1.0,
    prompt_drift_frac=0.0,
    completion_drift_frac=0.0,
    e2e_tail_s=5.0,
    window_s=30.0,
    n_windows=2,
    n_windows_diverged=0,
)
CLOSED = LoadPoint(kind=LoadKind.CLOSED, duration_s=60.0, concurrency=256)


def codes(facts: ValidityFacts) -> list[str]:
    return [flag.code for flag in judge_validity(facts)]


def test_a_clean_run_has_no_flag() -> None:
    assert judge_validity(CLEAN) == ()


def test_facts_that_were_not_measured_fire_no_rule() -> None:
    unknown = replace(
        CLEAN,
        client=replace(CLIENT, send_lag_p99_s=None, receive_error_p99_s=None, cpu_frac=None),
        server=ServerFacts(),
        ttft_p50_s=None,
        prompt_drift_frac=None,
        completion_drift_frac=None,
        e2e_tail_s=None,
    )
    assert judge_validity(unknown) == ()


@pytest.mark.parametrize(
    ("lag_s", "ttft_p50_s", "late"),
    [
        (0.050, 1.0, False),  # at the absolute limit
        (0.051, 1.0, True),
        (0.005, 0.023, True),  # over 10 % of 23 ms
        (0.002, 0.023, False),
        (0.051, None, True),  # no TTFT: the absolute limit alone
    ],
)
def test_a_late_client_makes_the_run_invalid_not_slow(
    lag_s: float, ttft_p50_s: float | None, late: bool
) -> None:
    client = replace(CLIENT, send_lag_p99_s=lag_s)
    flags = judge_validity(replace(CLEAN, client=client, ttft_p50_s=ttft_p50_s))
    assert [(f.code, f.invalid) for f in flags] == ([("CLIENT_SEND_LATE", True)] if late else [])


def test_late_receive_stamps_make_the_run_invalid() -> None:
    httpx_like = replace(CLEAN, client=replace(CLIENT, receive_error_p99_s=0.344))
    assert codes(httpx_like) == ["CLIENT_RECEIVE_LATE"]
    assert "344.0 ms of n=1000" in judge_validity(httpx_like)[0].sentence


def test_the_first_run_is_valid_and_the_same_prompts_again_are_a_warm_cache() -> None:
    first = window_hit_frac((0, 0), (131072, 0))
    second = window_hit_frac((131072, 0), (262144, 117965))
    assert first == 0.0
    assert second is not None
    assert round(100 * second, 1) == 90.0
    cold = replace(CLEAN, server=ServerFacts(hit_frac=first, expected_hit_frac=0.0))
    warm = replace(CLEAN, server=ServerFacts(hit_frac=second, expected_hit_frac=0.0))
    assert codes(cold) == []
    assert codes(warm) == ["WARM_PREFIX_CACHE"]
    assert judge_validity(warm)[0].invalid


@pytest.mark.parametrize(
    ("hit", "expected", "found"),
    [
        (0.0099, 0.0, []),
        (0.01, 0.0, ["WARM_PREFIX_CACHE"]),
        (0.41, 0.40, []),  # the trace's own reuse
        (0.45, 0.40, ["WARM_PREFIX_CACHE"]),
        (0.20, 0.40, []),  # evictions may lower it
        (0.45, None, ["PREFIX_REUSE_UNKNOWN"]),
    ],
)
def test_hits_are_judged_against_the_traces_own_reuse(
    hit: float, expected: float | None, found: list[str]
) -> None:
    server = ServerFacts(hit_frac=hit, expected_hit_frac=expected)
    assert codes(replace(CLEAN, server=server)) == found


def test_a_counter_that_fell_is_a_restart_and_no_query_is_no_rate() -> None:
    with pytest.raises(MeasurementInvalidError) as raised:
        window_hit_frac((100, 50), (20, 10))
    assert raised.value.code == "COUNTER_RESET"
    assert window_hit_frac((100, 50), (100, 50)) is None


def test_a_server_that_never_saw_the_concurrency_is_flagged() -> None:
    def peak(requests: int) -> list[str]:
        server = replace(CLEAN.server, peak_requests=requests)
        return codes(replace(CLEAN, load_point=CLOSED, server=server))

    assert peak(100) == ["LOAD_NOT_REACHED"]
    assert peak(230) == ["LOAD_NOT_REACHED"]  # 0.9 x 256 = 230.4
    assert peak(231) == []
    open_loop = replace(CLEAN, server=replace(CLEAN.server, peak_requests=1))
    assert codes(open_loop) == []


def test_errors_over_one_percent_are_believed_and_cannot_win() -> None:
    at_limit = replace(CLEAN, n_ok=990, errors=(("TIMEOUT", 10),))
    over = replace(CLEAN, n_ok=989, errors=(("TIMEOUT", 11),))
    assert codes(at_limit) == []
    (flag,) = judge_validity(over)
    assert (flag.code, flag.invalid) == ("ERROR_RATE", False)
    assert "11 of n=1000" in flag.sentence


def test_client_and_workload_failures_are_categories_of_their_own() -> None:
    mixed = replace(CLEAN, n_ok=995, errors=(("CLIENT_LIMIT", 2), ("CONTEXT_LENGTH_EXCEEDED", 3)))
    assert codes(mixed) == ["CLIENT_FAILURES", "WORKLOAD_ERROR"]


def test_limits_that_the_client_hit_are_handed_on_as_invalid() -> None:
    client = replace(CLIENT, limits=(("CLIENT_CONNECTION_LIMIT", "100 of 256 connections"),))
    (flag,) = judge_validity(replace(CLEAN, client=client))
    assert (flag.code, flag.invalid) == ("CLIENT_CONNECTION_LIMIT", True)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (replace(CLEAN, n_ok=0, errors=(("TIMEOUT", 1000),)), "NO_SUCCESSFUL_REQUESTS"),
        (replace(CLEAN, server=ServerFacts(counter_resets=("queries",))), "COUNTER_RESET"),
        (
            replace(CLEAN, server=ServerFacts(model_asked="a", model_seen="b")),
            "SERVER_IDENTITY_MISMATCH",
        ),
        (replace(CLEAN, client=replace(CLIENT, cpu_frac=0.95)), "CLIENT_BUSY"),
        (replace(CLEAN, completion_drift_frac=-0.03), "TOKEN_DRIFT"),
        (replace(CLEAN, e2e_tail_s=CLEAN.window_s + 0.1), "WINDOW_TOO_SHORT"),
        (replace(CLEAN, n_windows_diverged=1), "QUEUE_DIVERGES"),
    ],
)
def test_the_other_rules_fire(facts: ValidityFacts, code: str) -> None:
    assert code in codes(facts)


def test_rule_codes_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
