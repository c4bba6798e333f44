"""What a server's error body says: one sentence, a code, and the numbers of a length error."""

import json
import re
from dataclasses import dataclass

MESSAGE_LIMIT_CHARS = 500
REDACTED = "[redacted]"

# vLLM's wordings: "However, you requested 4109 tokens", "your prompt contains at least 4109 input
# tokens", "you requested 16 output tokens and your prompt contains 4093 input tokens".
_LIMIT = re.compile(r"maximum context length (?:is|of) (\d+)")
_REQUESTED = re.compile(r"requested (\d+) tokens")
_OUTPUT = re.compile(r"requested (\d+) output tokens")
_PROMPT = re.compile(r"contains (?:at least )?(\d+) (?:input )?tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """An error as the server wrote it; ``code`` is its number where it gave one."""

    message: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLengthError:
    """A refused request length: the limit and what was asked, in tokens, None where unsaid."""

    limit_tokens: int | None
    requested_tokens: int | None


def read_error_value(value: object) -> ServerError:
    """Return the error that a JSON value describes, in any of the shapes servers use."""
    if isinstance(value, dict):
        inner = value.get("error", value)
        if not isinstance(inner, dict):
            return ServerError(message=str(inner)[:MESSAGE_LIMIT_CHARS])
        message = inner.get("message", inner.get("detail", inner))
        code = inner.get("code")
        return ServerError(
            message=str(message)[:MESSAGE_LIMIT_CHARS],
            code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        )
    return ServerError(message=str(value)[:MESSAGE_LIMIT_CHARS])


def read_error_body(body: bytes) -> ServerError:
    """Return the error of a response body; a body that is no JSON is quoted from its start."""
    text = body.decode("utf-8", errors="replace")
    try:
        return read_error_value(json.loads(text))
    except ValueError:
        return ServerError(message=text[:MESSAGE_LIMIT_CHARS] or "no body")


def context_length_error(message: str) -> ContextLengthError | None:
    """Return the numbers of a context-length refusal, None where the message is another."""
    if "maximum context length" not in message and "max_model_len" not in message:
        return None
    limit = _number(_LIMIT, message)
    requested = _number(_REQUESTED, message)
    if requested is None:
        prompt, output = _number(_PROMPT, message), _number(_OUTPUT, message)
        requested = None if prompt is None else prompt + (output or 0)
    return ContextLengthError(limit_tokens=limit, requested_tokens=requested)


def without_secret(message: str, secret: str | None) -> str:
    """Return the message with the API key blotted out; some servers echo it."""
    return message if not secret else message.replace(secret, REDACTED)


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return None if found is None else int(found[1])
