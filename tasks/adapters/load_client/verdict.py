"""Whether an answer was a success, and if not, which error code and sentence say why."""

from tasks.adapters.load_client.server_errors import (
    ServerError,
    context_length_error,
    read_error_body,
)
from tasks.adapters.load_client.stream import TokenStream

Failure = tuple[str, str]


def stream_failure(stream: TokenStream, *, lost: str | None) -> Failure | None:
    """Return what was wrong with a 200 stream, None for a success.

    ``lost`` says why the body did not end cleanly. A finish reason or [DONE] makes a stream
    complete, text makes it more than empty, an error event outweighs both.
    """
    if stream.error is not None:
        return "STREAM_ERROR", _described(stream.error)
    if stream.first_token_ns is None and (lost is None or stream.ended):
        counted = stream.completion_tokens
        return "EMPTY_STREAM", (
            f"the stream ended without text (usage.completion_tokens={counted}, "
            f"finish_reason={stream.finish_reason})"
        )
    if not stream.ended:
        return "STREAM_TRUNCATED", (
            f"the stream stopped after {sum(stream.stamp_tokens)} tokens without finish_reason "
            f"or [DONE]: {lost or 'the body ended'}"
        )
    return None


def http_failure(status: int, body: bytes) -> Failure:
    """Return code and sentence of an answer that is no stream."""
    error = read_error_body(body)
    length = context_length_error(error.message)
    if length is not None:
        return "CONTEXT_LENGTH_EXCEEDED", (
            f"limit={length.limit_tokens} requested={length.requested_tokens}: "
            f"HTTP {status}: {error.message}"
        )
    return "HTTP_ERROR", f"HTTP {status}: {_described(error)}"


def _described(error: ServerError) -> str:
    return error.message if error.code is None else f"{error.message} (server code {error.code})"
