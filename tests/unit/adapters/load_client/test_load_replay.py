import gc
import json
from collections.abc import Callable

import pytest

from tasks.adapters.load_client.progress import ReplayProgress
from tasks.adapters.load_client.replay import closed_loop, replay
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tests.fakes.stream_events import DONE, chat_event, completion_event, usage_event
from tests.fakes.streaming_server import (
    GoldenServer,
    Script,
    Step,
    error_script,
    golden_server,
    steady,
)

VOCABULARY = PromptVocabulary(token_ids=tuple(range(100, 1100)))


def schedule_of(count: int, *, every_s: float = 0.0, tokens: int = 4) -> RequestSchedule:
    return RequestSchedule(
        requests=tuple(
            ScheduledRequest(index=i, due_s=i * every_s, prompt_tokens=8, output_tokens=tokens)
            for i in range(count)
        ),
        duration_s=max(1.0, count * every_s),
        seed=3,
    )


def endpoint_of(server: GoldenServer, *, key_env: str | None = None) -> Endpoint:
    return Endpoint(url=server.url, model="golden", owned=False, api_key_env=key_env)


def replayed(script: Script, *, count: int = 1, timeout_s: float = 20.0) -> RequestRecord:
    with golden_server(script) as server:
        records, _ = replay(
            endpoint_of(server),
            schedule_of(count),
            vocabulary=VOCABULARY,
            salt="t",
            request_timeout_s=timeout_s,
        )
    return records[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_stamps_agree_with_the_times_that_the_server_wrote(workers: int) -> None:
    with golden_server(steady(12, gap_s=0.01, first_s=0.03)) as server:
        records, report = replay(
            endpoint_of(server),
            schedule_of(24, every_s=0.005, tokens=12),
            vocabulary=VOCABULARY,
            salt="t",
            workers=workers,
        )
        written = server.completions
    assert [record.index for record in records] == list(range(24))
    assert all(record.ok and record.tokens == 12 for record in records)
    for record in records:
        server_s = [at_ns / 1e9 for at_ns in written[record.index].token_ns]
        ours = [at_s for at_s, _ in record.stamps]
        assert len(ours) == 12
        # Gaps are compared, since the clocks' zeros differ; 50 ms leaves room for a busy host.
        for i in range(1, 12):
            ours_s, theirs_s = ours[i] - ours[0], server_s[i] - server_s[0]
            assert ours_s == pytest.approx(theirs_s, abs=0.05)
        assert record.sent_s is not None and record.headers_s is not None
        assert record.due_s <= record.sent_s <= record.headers_s <= ours[0]
    assert report.requests == 24
    assert report.workers == workers
    assert report.receive_error_p99_s is not None and report.send_lag_p99_s is not None
    assert report.limits == ()


def test_an_open_loop_sends_on_although_nothing_is_answered() -> None:
    # The gate opens only when all 30 are in flight: a client that waits would never get there.
    with golden_server(Script(gate=30, steps=steady(1, gap_s=0, first_s=0).steps)) as server:
        records, _ = replay(endpoint_of(server), schedule_of(30), vocabulary=VOCABULARY, salt="t")
        assert server.peak_in_flight == 30
    assert all(record.ok for record in records)


def test_the_body_asks_for_exact_counts_and_carries_the_prompt_as_ids() -> None:
    with golden_server(steady(4, gap_s=0, first_s=0)) as server:
        replay(endpoint_of(server), schedule_of(2), vocabulary=VOCABULARY, salt="t")
        plain = replay(
            endpoint_of(server), schedule_of(1), vocabulary=VOCABULARY, salt="u", extensions=False
        )
        first, second, without = (r.body for r in server.received)
    prompt = first.pop("prompt")
    assert isinstance(prompt, list) and len(prompt) == 8
    assert prompt != second["prompt"]
    assert first == {
        "model": "golden",
        "max_tokens": 4,
        "min_tokens": 4,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert "ignore_eos" not in without and without["stream_options"] == {"include_usage": True}
    assert plain[0][0].ok


def test_chat_sends_the_decoded_text_and_needs_a_decoder() -> None:
    script = Script(
        steps=(Step(data=chat_event({"role": "assistant", "content": ""}, counted=0)),
               Step(data=chat_event({"content": "hi"}, finish="stop", counted=1)), Step(data=DONE))
    )  # fmt: skip
    with golden_server(script) as server:
        records, _ = replay(
            endpoint_of(server),
            schedule_of(1),
            vocabulary=VOCABULARY,
            salt="t",
            api="chat",
            decode=lambda ids: f"{len(ids)} ids",
        )
        assert server.received[0].path == "/v1/chat/completions"
        assert server.received[0].body["messages"] == [{"role": "user", "content": "8 ids"}]
        with pytest.raises(ConfigError, match="decode"):
            replay(endpoint_of(server), schedule_of(1), vocabulary=VOCABULARY, salt="t", api="chat")
    assert (records[0].ok, records[0].tokens) == (True, 1)


TOKEN = Step(data=completion_event("a", counted=1), tokens=1)


def test_many_tokens_in_one_chunk_count_as_many() -> None:
    steps = (
        Step(data=completion_event("abc", counted=3)),
        Step(data=completion_event("de", counted=5, finish="length"), gap_s=0.02),
        Step(data=usage_event(8, 5), gap_s=0.05),
        Step(data=DONE),
    )
    record = replayed(Script(steps=steps))
    assert [tokens for _, tokens in record.stamps] == [3, 2]
    assert record.tpot_s is not None and record.first_token_s is not None
    assert record.last_token_s is not None
    # 5 tokens: 4 steps; the usage chunk 50 ms later moves nothing.
    assert record.tpot_s == (record.last_token_s - record.first_token_s) / 4
    assert record.last_token_s == record.stamps[-1][0]


@pytest.mark.parametrize("workers", [1, 2])
def test_stop_cancels_what_is_in_flight_and_what_was_not_sent(workers: int) -> None:
    schedule = schedule_of(6, every_s=0.05)
    late = tuple(
        ScheduledRequest(index=i, due_s=600.0, prompt_tokens=8, output_tokens=1) for i in (6, 7)
    )
    schedule = RequestSchedule(requests=(*schedule.requests, *late), duration_s=600.0, seed=1)
    with golden_server(Script(steps=(TOKEN,), ending="hang")) as server:
        records, _ = replay(
            endpoint_of(server),
            schedule,
            vocabulary=VOCABULARY,
            salt="t",
            workers=workers,
            stop=lambda: len(server.received) == 6,
        )
    assert [record.error_code for record in records] == ["CANCELLED"] * 8
    assert [record.sent_s is None for record in records] == [False] * 6 + [True] * 2


def test_progress_counts_what_is_done_and_open() -> None:
    seen: list[ReplayProgress] = []
    with golden_server(steady(1, gap_s=0, first_s=0)) as server:
        replay(
            endpoint_of(server),
            schedule_of(12, every_s=0.12),
            vocabulary=VOCABULARY,
            salt="t",
            on_progress=seen.append,
        )
    assert seen
    assert all(progress.total == 12 and progress.errors == 0 for progress in seen)
    assert 0 < seen[0].done <= 12
    assert seen[0].ttft_p50_s is not None and seen[0].ttft_p50_s > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_closed_loop_keeps_its_concurrency_and_renumbers_shapes(workers: int) -> None:
    with golden_server(steady(3, gap_s=0.02, first_s=0.02)) as server:
        records, report = closed_loop(
            endpoint_of(server),
            schedule_of(3, tokens=3),
            concurrency=5,
            duration_s=0.5,
            vocabulary=VOCABULARY,
            salt="t",
            workers=workers,
        )
        assert server.peak_in_flight == 5
        prompts = [json.dumps(request.body["prompt"]) for request in server.received]
    assert len(records) > 10
    assert len({record.index for record in records}) == len(records)
    assert len(set(prompts)) == len(prompts)
    assert all(record.ok and record.due_s == record.sent_s for record in records)
    assert all(record.sent_s is not None and record.sent_s < 0.5 for record in records)
    assert report.workers == workers


def test_a_closed_loop_does_not_hammer_a_server_that_refuses() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9", model="golden", owned=False)
    records, _ = closed_loop(
        endpoint, schedule_of(1), concurrency=2, duration_s=0.35, vocabulary=VOCABULARY, salt="t"
    )
    # Two slots, a pause of 100 ms after each failure: at most four tries a slot.
    assert 2 <= len(records) <= 8


def test_the_key_is_sent_and_blotted_out_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-secret")
    with golden_server(error_script("Incorrect API key provided: sk-secret.", 401)) as server:
        records, _ = replay(
            endpoint_of(server, key_env="TEST_KEY"),
            schedule_of(1),
            vocabulary=VOCABULARY,
            salt="t",
        )
        assert server.received[0].headers["authorization"] == "Bearer sk-secret"
    assert records[0].error_code == "HTTP_ERROR"
    assert "sk-secret" not in repr(records)


def test_a_missing_key_variable_is_named_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    with golden_server(Script()) as server:
        with pytest.raises(ConfigError, match="TEST_KEY"):
            replay(
                endpoint_of(server, key_env="TEST_KEY"),
                schedule_of(1),
                vocabulary=VOCABULARY,
                salt="t",
            )
        assert server.received == []


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://host:port"])
def test_a_url_that_is_none_is_a_config_error(url: str) -> None:
    endpoint = Endpoint(url=url, model="golden", owned=False)
    with pytest.raises(ConfigError, match="url"):
        replay(endpoint, schedule_of(1), vocabulary=VOCABULARY, salt="t")


def test_an_empty_schedule_gives_no_records() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9", model="golden", owned=False)
    records, report = replay(endpoint, schedule_of(0), vocabulary=VOCABULARY, salt="t")
    assert (records, report.requests) == ((), 0)


def test_the_cycle_collector_is_back_on_after_a_run_and_after_a_fault() -> None:
    def fault() -> bool:
        raise LookupError("from the caller")

    run: Callable[[Callable[[], bool] | None], object] = lambda stop: replay(  # noqa: E731
        endpoint_of(server), schedule_of(1), vocabulary=VOCABULARY, salt="t", stop=stop
    )
    with golden_server(Script(ending="hang")) as server, pytest.raises(LookupError):
        run(fault)
    assert gc.isenabled()
