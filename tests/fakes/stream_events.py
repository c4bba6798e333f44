"""Stream events as servers write them: vLLM's key order, compact JSON."""

import json

DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """Return one data event."""
    return b"data: %s\n\n" % json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def completion_event(
    text: str,
    *,
    counted: int | None = None,
    prompt_tokens: int = 5,
    finish: str | None = None,
) -> bytes:
    """Return a completion chunk as vLLM writes it; counted: continuous usage."""
    value: dict[str, object] = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1764547200,
        "model": "golden",
        "choices": [
            {
                "index": 0,
                "text": text,
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": None,
                "prompt_token_ids": None,
                "token_ids": None,
            }
        ],
    }
    if counted is not None:
        value["usage"] = usage(prompt_tokens, counted)
    return event(value)


def chat_event(
    delta: dict[str, object], *, finish: str | None = None, counted: int | None = None
) -> bytes:
    """Return a chat chunk."""
    value: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1764547200,
        "model": "golden",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if counted is not None:
        value["usage"] = usage(20, counted)
    return event(value)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
    """Return a usage object in vLLM's key order."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def usage_event(prompt_tokens: int, completion_tokens: int) -> bytes:
    """Return the last chunk, which carries usage and no choice."""
    return event({"id": "cmpl-1", "choices": [], "usage": usage(prompt_tokens, completion_tokens)})
