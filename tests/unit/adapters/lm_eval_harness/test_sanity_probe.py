import json
from pathlib import Path

import httpx
import pytest

from tasks.adapters.lm_eval_harness.sanity import read_prompts, sanity_probe
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError
from tasks.domain.text_sanity import TextFlag

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="served", owned=False)
PROMPTS = Path(__file__).parents[4] / "configs" / "evaluation" / "sanity_prompts.txt"


def test_every_prompt_is_sent_once_greedily_and_its_text_judged() -> None:
    sent: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        sent.append(body)
        text = "!" * 32 if body["prompt"] == "broken" else " Paris."
        return httpx.Response(200, json={"choices": [{"text": text, "finish_reason": "length"}]})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    probe = sanity_probe(ENDPOINT, ("fine", "broken"), client=client)
    assert probe.flags == (None, TextFlag.DEGENERATE_SINGLE_CHAR)
    assert [body["prompt"] for body in sent] == ["fine", "broken"]
    assert {body["temperature"] for body in sent} == {0}


def test_a_reply_without_choices_counts_as_empty_text() -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, json={})))
    assert sanity_probe(ENDPOINT, ("x",), client=client).flags == (TextFlag.EMPTY_TEXT,)


def test_the_shipped_prompts_are_enough_and_all_different() -> None:
    prompts = read_prompts(PROMPTS)
    assert len(prompts) >= 20
    assert len(set(prompts)) == len(prompts)


def test_too_few_prompts_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("one\n\ntwo\n")
    with pytest.raises(ConfigError, match="2 prompts, at least 20"):
        read_prompts(short)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
