import asyncio
import socketserver
import threading

import httpx
import pytest

from tasks.adapters.load_client.control import (
    complete_once,
    max_model_len,
    served_models,
    server_version,
)
from tasks.adapters.load_client.transport import StampingTransport
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import (
    ConfigError,
    EngineDiedError,
    EngineNotReadyError,
    MeasurementInvalidError,
    TuningError,
)
from tests.fakes.streaming_server import (
    JSON,
    GoldenServer,
    Received,
    Script,
    error_script,
    golden_server,
    steady,
)

REPLY = Script(
    content_type=JSON,
    body=b'{"choices":[{"text":" Paris","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":1}}',
)
SLOW = Script(content_type=JSON, body=b"{}", headers_gap_s=30.0)


def endpoint_of(server: GoldenServer, model: str = "golden") -> Endpoint:
    return Endpoint(url=server.url, model=model, owned=False)


def ask(endpoint: Endpoint, *, timeout_s: float = 10.0) -> object:
    return complete_once(endpoint, [1, 2, 3], max_tokens=1, timeout_s=timeout_s)


def test_a_completion_comes_back_whole_with_the_servers_counts() -> None:
    with golden_server(REPLY) as server:
        reply = complete_once(
            endpoint_of(server), "Capital of France:", max_tokens=1, timeout_s=10.0, seed=4
        )
        sent = server.received[0].body
    assert (reply.text, reply.finish_reason) == (" Paris", "length")
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 1)
    assert reply.latency_s > 0
    assert (sent["prompt"], sent["seed"], sent["temperature"]) == ("Capital of France:", 4, 0.0)
    assert "stream" not in sent


def test_models_their_length_and_the_version_are_read() -> None:
    with golden_server(REPLY, served=("prod-chat", "alias")) as server:
        assert served_models(endpoint_of(server)) == ("prod-chat", "alias")
        assert max_model_len(endpoint_of(server, "alias")) == 4096
        assert max_model_len(endpoint_of(server, "other")) is None
        assert server_version(server.url) == "0.32.0"


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        (error_script("EngineCore encountered an issue.", 500), EngineDiedError, "ENGINE_DIED"),
        (error_script("too many requests", 429), EngineNotReadyError, "OVERLOADED"),
        (error_script("loading", 503), EngineNotReadyError, "OVERLOADED"),
        (error_script("Unauthorized", 401), ConfigError, "UNAUTHORIZED"),
        (error_script("unknown field", 400), MeasurementInvalidError, "HTTP_ERROR"),
        (Script(content_type=JSON, body=b"{}"), MeasurementInvalidError, "EMPTY_REPLY"),
        (Script(content_type=JSON, body=b"<html>"), MeasurementInvalidError, "EMPTY_REPLY"),
        (Script(ending="refuse"), EngineDiedError, "ENGINE_DIED"),
    ],
)
def test_each_refusal_is_an_error_of_its_own(
    script: Script, kind: type[TuningError], code: str
) -> None:
    with golden_server(script) as server, pytest.raises(kind) as caught:
        ask(endpoint_of(server))
    assert caught.value.code == code


def test_a_reply_that_does_not_come_in_time_says_the_engine_is_not_ready() -> None:
    with (
        golden_server(SLOW) as server,
        pytest.raises(EngineNotReadyError, match=r"timeout_s=0\.2") as caught,
    ):
        ask(endpoint_of(server), timeout_s=0.2)
    assert caught.value.code == "TIMEOUT"


def test_nothing_listening_says_the_engine_died() -> None:
    with pytest.raises(EngineDiedError, match="refused"):
        ask(Endpoint(url="http://127.0.0.1:9", model="golden", owned=False))


class PlainAnswer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_server_without_the_tls_that_the_url_promises_is_a_config_error() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), PlainAnswer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        with pytest.raises(ConfigError, match="SSL_CERT_FILE") as caught:
            ask(Endpoint(url=url, model="golden", owned=False))
        thread.join()
    assert caught.value.code == "TLS_ERROR"


def test_questions_may_be_asked_from_inside_a_running_loop() -> None:
    async def inside() -> tuple[str, ...]:
        return served_models(endpoint_of(server))

    with golden_server(REPLY) as server:
        assert asyncio.run(inside()) == ("golden",)


def test_the_key_of_a_refused_question_is_not_in_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-secret")
    with golden_server(error_script("wrong key sk-secret", 403)) as server:
        endpoint = Endpoint(url=server.url, model="golden", owned=False, api_key_env="TEST_KEY")
        with pytest.raises(ConfigError) as caught:
            ask(endpoint)
    assert "sk-secret" not in str(caught.value)


async def streamed(url: str) -> tuple[httpx.Response, bytes]:
    async with (
        httpx.AsyncClient(transport=StampingTransport()) as client,
        client.stream("POST", f"{url}/v1/completions", json={"model": "golden"}) as response,
    ):
        return response, b"".join([piece async for piece in response.aiter_raw()])


def test_the_transport_streams_and_stamps_every_chunk() -> None:
    script = steady(3, gap_s=0.01, first_s=0.01)
    with golden_server(script) as server:
        response, body = asyncio.run(streamed(server.url))
        written = server.received[0].token_ns
    assert body == b"".join(step.data for step in script.steps)
    arrivals = response.extensions["arrivals_ns"]
    assert len(arrivals) == 5
    assert response.extensions["sent_ns"] < response.extensions["first_byte_ns"] <= arrivals[0]
    for arrived_ns, written_ns in zip(arrivals, written, strict=False):
        assert 0 < arrived_ns - written_ns < 50_000_000


def test_the_transport_keeps_connections_and_replaces_one_that_was_dropped() -> None:
    def script(_: Received) -> Script:
        return Script(ending="refuse") if len(server.received) == 3 else REPLY

    async def four() -> list[int]:
        async with httpx.AsyncClient(transport=StampingTransport()) as client:
            url = f"{server.url}/v1/completions"
            return [(await client.post(url, json={"model": "golden"})).status_code for _ in "abc"]

    with golden_server(script) as server:
        assert asyncio.run(four()) == [200, 200, 200]
        assert (server.connections, len(server.received)) == (2, 4)


def test_a_cut_body_is_an_httpx_read_error() -> None:
    script = Script(steps=steady(1, gap_s=0, first_s=0).steps[:1], ending="cut")
    with golden_server(script) as server, pytest.raises(httpx.ReadError):
        asyncio.run(streamed(server.url))
