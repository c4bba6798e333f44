"""Recognises, without parsing JSON, the plain token chunks that make up nearly all of a stream.

Accepts one whole event exactly as vLLM 0.24 to 0.32 writes it, under a JSON string grammar strict
enough that acceptance means the same as json.loads, in a quarter of its time; says no to whatever
else comes.
"""

import re
from dataclasses import dataclass

_TEXT = rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
_STRING = rb'"' + _TEXT + rb'*+"'
_COUNT = rb"(?:0|[1-9][0-9]{0,17})"
_EVENT = re.compile(
    rb'data: \{"id":' + _STRING + rb',"object":' + _STRING + rb',"created":' + _COUNT + rb","
    rb'"model":' + _STRING + rb',"choices":\[\{"index":0,'
    rb'(?:"text":"' + _TEXT + rb'++"|"delta":\{(?:"content"|("reasoning")):"' + _TEXT + rb'++"\})'
    rb'(?:,"logprobs":null)?(?:,"finish_reason":null)?(?:,"stop_reason":null)?'
    rb'(?:,"prompt_token_ids":null)?(?:,"token_ids":null)?\}\]'
    rb'(?:,"usage":\{"prompt_tokens":(' + _COUNT + rb'),"total_tokens":' + _COUNT + rb","
    rb'"completion_tokens":(' + _COUNT + rb")"
    rb'(?:,"prompt_tokens_details":null)?(?:,"completion_tokens_details":null)?\})?\}\n\n'
)
_match_event = _EVENT.fullmatch


@dataclass(slots=True)
class TokenEvent:
    """A chunk that carries text; counts are its continuous usage, None where it has none."""

    is_reasoning: bool
    prompt_tokens: int | None
    completion_tokens: int | None


def token_event(data: bytes) -> TokenEvent | None:
    """Return what one event says where it carries text and no end, error or surprise."""
    found = _match_event(data)
    if found is None:
        return None
    reasoning, prompt, completion = found.groups()
    if completion is None:
        return TokenEvent(reasoning is not None, None, None)
    return TokenEvent(reasoning is not None, int(prompt), int(completion))
