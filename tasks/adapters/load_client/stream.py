"""One completion stream: which chunk carried how many tokens, and how the stream ended.

Takes body bytes with their arrival time; knows no socket and no clock. A token is text: the role
chunk, empty deltas and the usage chunk are none.
"""

import json
from array import array

from tasks.adapters.load_client.server_errors import ServerError, read_error_value
from tasks.adapters.load_client.sse import EventFrames
from tasks.adapters.load_client.token_event import TokenEvent, token_event

DONE = b"[DONE]"
FAILED_FINISHES = ("error", "abort")


class TokenStream:
    """Reads one stream; every ``*_ns`` is the arrival time that came with the bytes."""

    __slots__ = (
        "_continuous",
        "_counted",
        "_frames",
        "cached_tokens",
        "completion_tokens",
        "done",
        "error",
        "finish_reason",
        "first_content_ns",
        "first_token_ns",
        "last_token_ns",
        "prompt_tokens",
        "stamp_ns",
        "stamp_tokens",
    )

    def __init__(self) -> None:
        self._frames = EventFrames()
        self._continuous: bool | None = None
        self._counted = 0
        self.stamp_ns = array("q")
        self.stamp_tokens = array("q")
        self.first_token_ns: int | None = None
        self.first_content_ns: int | None = None
        self.last_token_ns: int | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: ServerError | None = None
        self.done = False

    @property
    def ended(self) -> bool:
        """Tell whether the server said that the stream is complete."""
        return self.done or self.finish_reason is not None

    def feed(self, data: bytes, at_ns: int) -> None:
        """Take body bytes that arrived at ``at_ns``."""
        # Before the first bytes the frames are not idle, so the fast check starts at event two.
        if self._frames.idle and self.error is None and not self.done:
            token = token_event(data)
            if token is not None:
                self._accepted(token, at_ns)
                return
        for event in self._frames.feed(data):
            self._event(event, at_ns)

    def end(self, at_ns: int) -> None:
        """Take the clean end of the body; a last event without its blank line still counts."""
        for event in self._frames.flush():
            self._event(event, at_ns)

    def _accepted(self, token: TokenEvent, at_ns: int) -> None:
        has_usage = token.completion_tokens is not None
        if has_usage:
            self.prompt_tokens = token.prompt_tokens
            self.completion_tokens = token.completion_tokens
        if self.first_content_ns is None and not token.is_reasoning:
            self.first_content_ns = at_ns
        self._token(at_ns, has_usage=has_usage)

    def _event(self, event: bytes, at_ns: int) -> None:
        if self.error is not None or self.done:
            return
        if event.strip() == DONE:
            self.done = True
            return
        try:
            chunk = json.loads(event)
        except ValueError:
            shown = event[:80].decode("utf-8", errors="replace")
            self.error = ServerError(message=f"stream event is no JSON: {shown!r}")
            return
        if not isinstance(chunk, dict):
            self.error = ServerError(message=f"stream event is no JSON object: {chunk!r:.80}")
        elif chunk.get("error"):
            self.error = read_error_value(chunk)
        else:
            self._chunk(chunk, at_ns)

    def _chunk(self, chunk: dict[str, object], at_ns: int) -> None:
        has_usage = self._usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        if _has_content(choice):
            if self.first_content_ns is None:
                self.first_content_ns = at_ns
            self._token(at_ns, has_usage=has_usage)
        elif _has_other_text(choice):
            self._token(at_ns, has_usage=has_usage)
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self.finish_reason = finish
            if finish in FAILED_FINISHES:
                self.error = ServerError(message=f"the server ended the stream with {finish!r}")

    def _usage(self, usage: object) -> bool:
        if not isinstance(usage, dict):
            return False
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int):
            self.prompt_tokens = prompt
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            self.cached_tokens = details["cached_tokens"]
        if not isinstance(completion, int):
            return False
        self.completion_tokens = completion
        return True

    def _token(self, at_ns: int, *, has_usage: bool) -> None:
        """Count a chunk with text: k tokens by continuous usage, else one.

        Usage that first appears on a later chunk is the stream's total, not this chunk's.
        """
        if self._continuous is None:
            self._continuous = has_usage
            self.first_token_ns = at_ns
        self.last_token_ns = at_ns
        tokens = 1
        if has_usage and self._continuous and self.completion_tokens is not None:
            tokens = self.completion_tokens - self._counted
            if tokens <= 0:
                # Text held back from tokens already counted: it moves the end, adds no token.
                return
        self._counted += tokens
        self.stamp_ns.append(at_ns)
        self.stamp_tokens.append(tokens)


def _has_content(choice: dict[str, object]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and bool(delta.get("content"))


def _has_other_text(choice: dict[str, object]) -> bool:
    """Tell whether a delta carries reasoning or tool-call text."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    if delta.get("reasoning") or delta.get("reasoning_content"):
        return True
    calls = delta.get("tool_calls")
    functions = [call.get("function") for call in calls or () if isinstance(call, dict)]
    return any(
        isinstance(function, dict) and (function.get("name") or function.get("arguments"))
        for function in functions
    )
