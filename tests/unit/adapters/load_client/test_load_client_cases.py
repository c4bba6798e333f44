"""Public fault reports as tests: cases d-03, d-04, d-07 and d-08, the client's side of them."""

import resource
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.adapters.load_client.control import complete_once
from tasks.adapters.load_client.descriptors import descriptor_shortfall
from tasks.adapters.load_client.replay import closed_loop, replay
from tasks.adapters.load_client.server_errors import context_length_error
from tasks.adapters.load_client.stream import TokenStream
from tasks.adapters.load_client.verdict import stream_failure
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tests.fakes.stream_events import chat_event, completion_event, event, usage_event
from tests.fakes.streaming_server import Script, Step, error_script, golden_server, steady

VOCABULARY = PromptVocabulary(token_ids=tuple(range(100, 1100)))


def case(shared_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((shared_dir / "cases" / f"{name}.yaml").read_text())
    return loaded


def one_record(script: Script, *, prompt_tokens: int = 8, output_tokens: int = 4) -> RequestRecord:
    request = ScheduledRequest(
        index=0, due_s=0.0, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )
    schedule = RequestSchedule(requests=(request,), duration_s=1.0, seed=1)
    with golden_server(script) as server:
        endpoint = Endpoint(url=server.url, model="golden", owned=False)
        records, _ = replay(endpoint, schedule, vocabulary=VOCABULARY, salt="t")
    return records[0]


@pytest.mark.parametrize("name", ["sse", "sse_empty", "sse_cut", "sse_ping"])
def test_d03_a_200_stream_is_a_success_only_when_it_ends_as_one(
    shared_dir: Path, name: str
) -> None:
    loaded = case(shared_dir, "d-03")
    lines, expected = loaded["input"][name], loaded["expected"][name]
    steps = tuple(Step(data=f"{line}\n\n".encode()) for line in lines if line[0] != "<")
    record = one_record(Script(steps=steps, ending="cut" if name == "sse_cut" else "end"))
    assert record.ok is expected["success"]
    assert record.error_code == expected.get("error_code")
    assert record.http_status == 200
    assert record.completion_tokens == expected.get("completion_tokens")
    assert record.prompt_tokens == expected.get("prompt_tokens")
    if name == "sse":
        assert f"server code {expected['server_code']}" in str(record.error_message)
        assert sum(tokens for _, tokens in record.stamps) == expected["partial_tokens"]


def test_d04_ttft_ends_at_reasoning_text_and_e2e_at_the_last_text(shared_dir: Path) -> None:
    loaded = case(shared_dir, "d-04")
    expected, stream = loaded["expected"], TokenStream()
    for at_s, chunk in loaded["input"]["timeline_s"]:
        at_ns = round(at_s * 1e9)
        if "delta" in chunk:
            stream.feed(chat_event(chunk["delta"], finish=chunk.get("finish_reason")), at_ns)
        else:
            stream.feed(event(chunk), at_ns)
    assert stream_failure(stream, lost=None) is None
    assert stream.first_token_ns == round(expected["ttft_ms"] * 1e6)
    assert stream.first_content_ns == round(expected["time_to_first_content_ms"] * 1e6)
    assert stream.last_token_ns == round(expected["e2e_ms"] * 1e6)
    record = RequestRecord(
        index=0,
        due_s=0.0,
        asked_prompt_tokens=20,
        asked_output_tokens=54,
        first_token_s=(stream.first_token_ns or 0) / 1e9,
        last_token_s=(stream.last_token_ns or 0) / 1e9,
        completion_tokens=stream.completion_tokens,
    )
    # 1630 ms / 53 tokens.
    assert record.tpot_s is not None
    assert record.tpot_s * 1e3 == pytest.approx(expected["tpot_ms"], abs=5e-4)


def test_d07_a_400_for_length_is_a_workload_error_with_its_numbers(shared_dir: Path) -> None:
    loaded = case(shared_dir, "d-07")
    asked, expected = loaded["input"]["requests"][0], loaded["expected"]["requests"][0]
    record = one_record(error_script(asked["body"], asked["http"]), prompt_tokens=4000)
    assert record.error_code == expected["error_code"]
    numbers = f"limit={expected['limit']} requested={expected['requested']}"
    assert numbers in str(record.error_message)


def test_d07_lengths_are_the_servers_not_the_asked_ones(shared_dir: Path) -> None:
    loaded = case(shared_dir, "d-07")
    asked, expected = loaded["input"]["requests"][1], loaded["expected"]["requests"][1]
    counts = asked["usage"]
    steps = (
        Step(data=completion_event("x", finish="length")),
        Step(data=usage_event(counts["prompt_tokens"], counts["completion_tokens"])),
    )
    record = one_record(
        Script(steps=steps),
        prompt_tokens=asked["asked_prompt"],
        output_tokens=asked["max_tokens"],
    )
    assert record.prompt_tokens == expected["prompt_tokens"]
    assert record.prompt_tokens is not None
    drift_pct = 100 * (record.prompt_tokens / record.asked_prompt_tokens - 1)
    assert round(drift_pct, 1) == expected["drift_pct"]


def test_d07_a_wrong_model_name_is_told_with_the_names_that_are_served(shared_dir: Path) -> None:
    loaded = case(shared_dir, "d-07")
    probe, expected = loaded["input"]["probe"], loaded["expected"]["probe"]
    with golden_server(Script(), served=tuple(expected["served"])) as server:
        endpoint = Endpoint(url=server.url, model=probe["model"], owned=False)
        with pytest.raises(MeasurementInvalidError, match=expected["served"][0]) as caught:
            complete_once(endpoint, "hi", max_tokens=1, timeout_s=10.0)
    assert caught.value.code == expected["error_code"]
    assert probe["body"] in str(caught.value)


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains at "
            "least 4097 input tokens, which exceeds this limit even without any output tokens.",
            (4096, 4097),
        ),
        (
            "This model's maximum context length is 512 tokens. However, you requested 100 output "
            "tokens and your prompt contains 450 input tokens, for a total of 550 tokens.",
            (512, 550),
        ),
        ("'max_tokens' must be below max_model_len", (None, None)),
    ],
)
def test_d07_newer_wordings_give_their_numbers_too(
    message: str, numbers: tuple[int | None, int | None]
) -> None:
    found = context_length_error(message)
    assert found is not None
    assert (found.limit_tokens, found.requested_tokens) == numbers


def test_d08_the_open_file_limit_is_refused_before_anything_is_sent(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = case(shared_dir, "d-08")
    config, expected = loaded["input"]["config"], loaded["expected"]["preflight"][1]
    soft = config["rlimit_nofile"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    with golden_server(Script()) as server:
        with pytest.raises(MeasurementInvalidError) as caught:
            closed_loop(
                Endpoint(url=server.url, model="golden", owned=False),
                RequestSchedule(
                    requests=(
                        ScheduledRequest(index=0, due_s=0.0, prompt_tokens=2, output_tokens=1),
                    ),
                    duration_s=1.0,
                    seed=1,
                ),
                concurrency=config["concurrency"],
                duration_s=1.0,
                vocabulary=VOCABULARY,
                salt="t",
            )
        assert server.connections == 0
    assert caught.value.code == expected["error_code"]
    assert f"soft={expected['soft']}" in str(caught.value)
    assert f"needed_at_least={expected['needed_at_least']}" in str(caught.value)
    assert descriptor_shortfall(concurrency=256, soft=expected["needed_at_least"]) is None


def test_d08_our_client_reaches_the_concurrency_that_others_stop_short_of(
    shared_dir: Path,
) -> None:
    concurrency = case(shared_dir, "d-08")["input"]["config"]["concurrency"]
    script = Script(gate=concurrency, steps=steady(1, gap_s=0, first_s=0).steps)
    requests = (ScheduledRequest(index=0, due_s=0.0, prompt_tokens=2, output_tokens=1),)
    with golden_server(script) as server:
        records, report = closed_loop(
            Endpoint(url=server.url, model="golden", owned=False),
            RequestSchedule(requests=requests, duration_s=1.0, seed=1),
            concurrency=concurrency,
            duration_s=0.05,
            vocabulary=VOCABULARY,
            salt="t",
        )
        # The server answers only when all are in flight at once.
        assert server.peak_in_flight == concurrency
    assert all(record.ok for record in records)
    assert report.limits == ()


def test_d08_running_out_of_sockets_in_an_open_loop_is_a_category_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 72 descriptors less 64 kept back: 8 connections for 12 requests at once.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (72, 72))
    requests = tuple(
        ScheduledRequest(index=i, due_s=0.0, prompt_tokens=2, output_tokens=1) for i in range(12)
    )
    with golden_server(Script(gate=8, steps=steady(1, gap_s=0, first_s=0.2).steps)) as server:
        records, report = replay(
            Endpoint(url=server.url, model="golden", owned=False),
            RequestSchedule(requests=requests, duration_s=1.0, seed=1),
            vocabulary=VOCABULARY,
            salt="t",
        )
    codes = [record.error_code for record in records]
    assert (codes.count(None), codes.count("CLIENT_LIMIT")) == (8, 4)
    assert report.limits[0][0] == "RLIMIT_NOFILE_TOO_LOW"
