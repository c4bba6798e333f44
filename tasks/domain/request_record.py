"""What the client saw of one request. Times are seconds from the schedule's start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request as it went; a time that never came is None.

    due_s: when it should have been sent; sent_s: when its bytes were written.
    headers_s: first byte of the answer. first_token_s: first non-empty content, reasoning or
    tool-call text. last_token_s: last such text; the usage chunk does not move it.
    stamps: (arrival time, tokens in that chunk) of every chunk with text.
    prompt_tokens, completion_tokens: the server's usage; None where it reported none.
    error_code: None for a success; else HTTP_ERROR, CONTEXT_LENGTH_EXCEEDED, STREAM_ERROR,
    EMPTY_STREAM, STREAM_TRUNCATED, CONNECTION_ERROR, TIMEOUT, CLIENT_LIMIT, CANCELLED, STOPPED.
    """

    index: int
    due_s: float
    asked_prompt_tokens: int
    asked_output_tokens: int
    sent_s: float | None = None
    headers_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    stamps: tuple[tuple[float, int], ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the request ended as it should."""
        return self.error_code is None

    @property
    def tokens(self) -> int:
        """Completion tokens: the server's usage, else those that the chunks carried."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return sum(k for _, k in self.stamps)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the due time to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.due_s

    @property
    def ttft_from_send_s(self) -> float | None:
        """Seconds from the send to the first token."""
        if self.first_token_s is None or self.sent_s is None:
            return None
        return self.first_token_s - self.sent_s

    @property
    def e2e_s(self) -> float | None:
        """Seconds from the due time to the last token; None for a failed request."""
        if self.last_token_s is None or not self.ok:
            return None
        return self.last_token_s - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """(last token - first token) / (tokens - 1); None for fewer than two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReport:
    """How well the client itself kept time; the limits that make a run INVALID are applied later.

    send_lag_p99_s: how late requests were written. receive_error_p99_s: how late arriving bytes
    were stamped (event-loop lag measured by a probe). cpu_frac: client CPU seconds per wall
    second of the busiest worker. limits: client-side limits that were hit, as (code, sentence).
    """

    requests: int
    send_lag_p50_s: float | None
    send_lag_p99_s: float | None
    receive_error_p99_s: float | None
    cpu_frac: float | None
    workers: int
    wall_s: float
    limits: tuple[tuple[str, str], ...] = ()
