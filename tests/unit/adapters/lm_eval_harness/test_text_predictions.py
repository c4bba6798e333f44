import json

import httpx
import pytest

from tasks.adapters.lm_eval_harness.text_predictions import block_predictions, text_predictions
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EvaluationError

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="served", owned=False)


def entry(**logprobs: float) -> dict[str, dict[str, float]]:
    return {key.removeprefix("t"): {"logprob": value} for key, value in logprobs.items()}


def reply(*entries: object) -> dict[str, object]:
    return {"choices": [{"prompt_logprobs": list(entries)}]}


def test_each_token_but_the_first_gets_its_own_and_the_likeliest_probabilities() -> None:
    answer = reply(None, entry(t7=-2.0, t3=-0.5), entry(t8=-0.1))
    first, second = block_predictions([5, 7, 8], answer)
    assert (first.token_id, first.logprob) == (7, -2.0)
    assert first.top == ((3, -0.5), (7, -2.0))
    assert (second.token_id, second.logprob) == (8, -0.1)


def test_a_text_is_asked_in_blocks() -> None:
    asked: list[list[int]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        block = json.loads(request.content)["prompt"]
        asked.append(block)
        tail = [{str(token): {"logprob": -1.0}} for token in block[1:]]
        return httpx.Response(200, json=reply(None, *tail))

    client = httpx.Client(transport=httpx.MockTransport(answer))
    found = text_predictions(ENDPOINT, range(7), block_tokens=3, client=client)
    assert asked == [[0, 1, 2], [3, 4, 5]]  # the last token alone predicts nothing
    assert [p.token_id for p in found] == [1, 2, 4, 5]


def test_a_reply_without_prompt_logprobs_is_refused() -> None:
    with pytest.raises(EvaluationError) as caught:
        block_predictions([1, 2], {"choices": [{"text": "x"}]})
    assert caught.value.code == "NO_PROMPT_LOGPROBS"
    with pytest.raises(EvaluationError, match="own token 2"):
        block_predictions([1, 2], reply(None, entry(t9=-1.0)))
