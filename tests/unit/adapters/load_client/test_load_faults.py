import pytest

from tasks.adapters.load_client.replay import replay
from tasks.domain.endpoint import Endpoint
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.request_record import RequestRecord
from tasks.domain.schedule import RequestSchedule, ScheduledRequest
from tests.fakes.stream_events import DONE, completion_event
from tests.fakes.streaming_server import (
    JSON,
    GoldenServer,
    Received,
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


TOKEN = Step(data=completion_event("a", counted=1), tokens=1)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (error_script("bad field foo", 400), "HTTP_ERROR", "HTTP 400: bad field foo"),
        (Script(steps=(TOKEN,), ending="cut"), "STREAM_TRUNCATED", "after 1 tokens"),
        (Script(ending="refuse"), "CONNECTION_ERROR", "closed"),
        (Script(steps=(Step(data=DONE),)), "EMPTY_STREAM", "without text"),
        (
            Script(body=b'{"error":{"message":"no"}}', content_type=JSON),
            "HTTP_ERROR",
            "HTTP 200: no",
        ),
    ],
)
def test_a_failed_answer_is_a_record_with_its_code(script: Script, code: str, said: str) -> None:
    record = replayed(script)
    assert record.error_code == code
    assert record.error_message is not None and said in record.error_message


def test_partial_tokens_of_a_failed_request_stay_in_its_stamps() -> None:
    record = replayed(Script(steps=(TOKEN,), ending="cut"))
    assert (record.ok, [tokens for _, tokens in record.stamps]) == (False, [1])
    assert record.e2e_s is None


def test_a_request_without_an_end_times_out_and_its_server_sees_the_connection_go() -> None:
    record = replayed(Script(steps=(TOKEN,), ending="hang"), timeout_s=0.2)
    assert record.error_code == "TIMEOUT"
    assert record.error_message == "no complete answer within request_timeout_s=0.2"
    assert len(record.stamps) == 1


def test_a_stream_whose_server_forgets_to_end_the_body_after_done_is_a_success() -> None:
    steps = (Step(data=completion_event("a", finish="stop")), Step(data=DONE))
    assert replayed(Script(steps=steps, ending="hang"), timeout_s=0.2).ok


def test_what_is_open_after_the_drain_timeout_times_out() -> None:
    with golden_server(Script(ending="hang")) as server:
        records, _ = replay(
            endpoint_of(server),
            schedule_of(3),
            vocabulary=VOCABULARY,
            salt="t",
            drain_timeout_s=0.1,
        )
    assert [record.error_code for record in records] == ["TIMEOUT"] * 3
    assert "drain_timeout_s=0.1" in str(records[0].error_message)


def test_slow_and_split_headers_and_a_close_delimited_body_are_read() -> None:
    steps = steady(2, gap_s=0, first_s=0).steps
    slow = replayed(Script(steps=steps, headers_gap_s=0.05, split_headers=True))
    assert slow.ok and slow.headers_s is not None and slow.first_token_s is not None
    # The first byte of the answer came 50 ms before the rest of its head.
    assert slow.first_token_s - slow.headers_s >= 0.045
    assert replayed(Script(steps=steps, close_delimited=True)).ok


def test_a_kept_alive_connection_that_the_server_dropped_is_replaced() -> None:
    def script(request: Received) -> Script:
        seen.append(request)
        return Script(ending="refuse") if len(seen) == 2 else steady(1, gap_s=0, first_s=0)

    seen: list[Received] = []
    with golden_server(script) as server:
        records, _ = replay(
            endpoint_of(server), schedule_of(2, every_s=0.1), vocabulary=VOCABULARY, salt="t"
        )
    assert [record.ok for record in records] == [True, True]
    assert [request.number for request in seen] == [0, 1, 1]


def test_nothing_listening_gives_connection_errors_and_no_crash() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9", model="golden", owned=False)
    records, report = replay(endpoint, schedule_of(2), vocabulary=VOCABULARY, salt="t")
    assert [record.error_code for record in records] == ["CONNECTION_ERROR"] * 2
    assert all(record.sent_s is None for record in records)
    assert report.send_lag_p99_s is None
