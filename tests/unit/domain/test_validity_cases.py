"""Public fault reports as tests: cases d-06 and d-08, what the server's side of them says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.prompts import PromptVocabulary, prompt_token_ids
from tasks.domain.request_record import ClientReport
from tasks.domain.schedule import ScheduledRequest
from tasks.domain.validity import (
    ServerFacts,
    ValidityFacts,
    client_was_late,
    judge_validity,
    window_hit_frac,
)

FACTS = ValidityFacts(
    load_point=LoadPoint(kind=LoadKind.OPEN, duration_s=60.0, rate_scale=1.0),
    client=ClientReport(
        requests=128,
        send_lag_p50_s=0.0001,
        send_lag_p99_s=0.0004,
        receive_error_p99_s=0.0004,
        cpu_frac=0.2,
        workers=1,
        wall_s=60.0,
    ),
    server=ServerFacts(),
    n_requests=128,
    n_ok=128,
    errors=(),
    ttft_p50_s=0.48,
    prompt_drift_frac=0.0,
    completion_drift_frac=0.0,
    e2e_tail_s=5.0,
    window_s=30.0,
    n_windows=2,
    n_windows_diverged=0,
)


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text())
    return loaded


@pytest.mark.parametrize("run", ["run_1", "run_2_same_seed"])
def test_d06_hits_of_the_window_decide_whether_the_cache_was_warm(
    shared_dir: Path, run: str
) -> None:
    loaded = case(shared_dir, "d-06")
    seen, expected = loaded["input"][run], loaded["expected"][run]
    before, after = ((at["queries"], at["hits"]) for at in (seen["before"], seen["after"]))
    hit_frac = window_hit_frac(before, after)
    assert hit_frac is not None
    assert round(100 * hit_frac, 1) == expected["hit_pct"]
    flags = judge_validity(
        replace(
            FACTS,
            ttft_p50_s=seen["ttft_p50_ms"] / 1e3,
            server=ServerFacts(hit_frac=hit_frac, expected_hit_frac=0.0),
        )
    )
    assert [flag.code for flag in flags] == ([] if expected["valid"] else [expected["error_code"]])
    assert all(flag.invalid for flag in flags)
    assert not client_was_late(flags)  # measuring once more would find the same warm cache


def test_d06_a_new_salt_sends_other_tokens_of_the_same_lengths() -> None:
    vocabulary = PromptVocabulary(token_ids=tuple(range(1000, 9000)))
    request = ScheduledRequest(
        index=3, due_s=0.0, prompt_tokens=200, output_tokens=1, prefix_blocks=(7, 8)
    )
    one, again, other = (
        prompt_token_ids(request, vocabulary=vocabulary, seed=0, salt=salt, prefix_block_tokens=64)
        for salt in ("run-1", "run-1", "run-2")
    )
    assert one == again
    assert len(one) == len(other) == 200
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 5


def test_d08_a_load_that_never_reached_the_server_is_no_measurement(shared_dir: Path) -> None:
    loaded = case(shared_dir, "d-08")
    wanted = loaded["expected"]["verdict"]
    point = LoadPoint(
        kind=LoadKind.CLOSED, duration_s=60.0, concurrency=wanted["target_concurrency"]
    )
    peak = loaded["input"]["observed"]["server_num_requests_running_max"]
    (flag,) = judge_validity(
        replace(FACTS, load_point=point, server=ServerFacts(peak_requests=peak))
    )
    assert (flag.code, flag.invalid) == (wanted["error_code"], True)
    assert f"at most {wanted['peak_running']} requests at once" in flag.sentence
    # 90 % of 256 is 230.4.
    enough = replace(FACTS, load_point=point, server=ServerFacts(peak_requests=231))
    assert judge_validity(enough) == ()
