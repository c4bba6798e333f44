import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml

from tasks.adapters.lm_eval_harness.prompt_logprobs import (
    logprob_entries,
    post_completion,
    request_headers,
    require_prompt_logprobs,
)
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EngineDiedError, EvaluationError

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="served", owned=False)


def client_of(handler: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(handler))


def reply(*, prompt_tokens: int, entries: int) -> dict[str, object]:
    return {
        "usage": {"prompt_tokens": prompt_tokens},
        "choices": [{"logprobs": {"token_logprobs": [None] + [-1.0] * (entries - 1)}}],
    }


def test_a_server_without_prompt_logprobs_is_refused_with_both_numbers(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-03.yaml").read_text())
    given, expected = case["input"]["probe"], case["expected"]["probe"]
    asked: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        body = reply(prompt_tokens=given["prompt_tokens"], entries=given["token_logprobs_returned"])
        return httpx.Response(200, json=body)

    with pytest.raises(EvaluationError) as caught:
        require_prompt_logprobs(ENDPOINT, client=client_of(answer))
    assert caught.value.code == expected["error_code"]
    assert f"returned {expected['got']} token_logprobs" in str(caught.value)
    assert f"expected {expected['expected_entries']}" in str(caught.value)
    assert asked == [{"model": "served", **given["request"]}]


def test_a_server_that_echoes_every_prompt_token_is_accepted() -> None:
    body = reply(prompt_tokens=5, entries=6)
    require_prompt_logprobs(ENDPOINT, client=client_of(lambda _: httpx.Response(200, json=body)))


def test_a_reply_without_usage_is_not_trusted() -> None:
    body = {"choices": [{"logprobs": {"token_logprobs": [None, -1.0]}}]}
    with pytest.raises(EvaluationError, match="one entry per prompt token"):
        require_prompt_logprobs(
            ENDPOINT, client=client_of(lambda _: httpx.Response(200, json=body))
        )


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"logprobs": None}]}])
def test_odd_replies_hold_no_entries(answer: dict[str, object]) -> None:
    assert logprob_entries(answer) == (None, 0)


def test_a_refusal_quotes_the_server() -> None:
    client = client_of(lambda _: httpx.Response(404, text="model not found"))
    with pytest.raises(EvaluationError, match="404 for model='served': model not found"):
        post_completion(ENDPOINT, {"prompt": "x"}, client=client)


def test_silence_is_a_dead_engine() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(EngineDiedError, match="did not answer"):
        post_completion(ENDPOINT, {"prompt": "x"}, client=client_of(refuse))


def test_the_key_comes_out_of_the_environment_variable_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETUNE_TEST_KEY", "k")
    named = Endpoint(url="http://h", model="m", owned=False, api_key_env="RETUNE_TEST_KEY")
    assert request_headers(named) == {"Authorization": "Bearer k"}
    assert request_headers(ENDPOINT) == {}
