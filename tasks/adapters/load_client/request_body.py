"""Requests as bytes: head and JSON body of one scheduled request, made ahead of its send."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tasks.adapters.load_client.pool import Origin
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError
from tasks.domain.prompts import PromptVocabulary, prompt_token_ids
from tasks.domain.schedule import ScheduledRequest

Api = Literal["completions", "chat"]
Decode = Callable[[list[int]], str]
PATHS: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
PREPARED_LIMIT_BYTES = 256 * 1024 * 1024


def api_key(endpoint: Endpoint) -> str | None:
    """Return the endpoint's API key from the environment, None where it needs none.

    Raises:
        ConfigError: when the named variable is not set.
    """
    if endpoint.api_key_env is None:
        return None
    key = os.environ.get(endpoint.api_key_env)
    if not key:
        raise ConfigError(
            f"environment variable {endpoint.api_key_env} (endpoint api_key_env) is not set; "
            f"export it with the API key of {endpoint.url}",
            code="API_KEY_MISSING",
        )
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWriter:
    """Renders scheduled requests for one endpoint.

    extensions: send vLLM's own fields (ignore_eos, min_tokens, skip_special_tokens,
    continuous_usage_stats); without them a server may stop early and counts one token a chunk.
    decode: token ids to text, needed for chat only.
    """

    endpoint: Endpoint
    vocabulary: PromptVocabulary
    seed: int
    salt: str
    prefix_block_tokens: int
    api: Api = "completions"
    extensions: bool = True
    decode: Decode | None = None

    def rendered(self, request: ScheduledRequest, head: bytes) -> bytes:
        """Return the whole request; ``head`` comes from ``head_of`` once a run."""
        body = json.dumps(self.body(request), separators=(",", ":")).encode()
        return b"%sX-Request-Id: %s-%d\r\nContent-Length: %d\r\n\r\n%s" % (
            head,
            _header_token(self.salt),
            request.index,
            len(body),
            body,
        )

    def head_of(self, origin: Origin, key: str | None) -> bytes:
        """Return the request line and the headers that every request of a run shares."""
        lines = [
            f"POST {origin.path}{PATHS[self.api]} HTTP/1.1",
            f"Host: {origin.host_header}",
            "User-Agent: vllm-retune",
            "Accept: text/event-stream",
            "Content-Type: application/json",
        ]
        if key is not None:
            lines.append(f"Authorization: Bearer {key}")
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")

    def body(self, request: ScheduledRequest) -> dict[str, object]:
        """Return the JSON body of a request.

        Raises:
            ConfigError: for chat without a decoder.
        """
        ids = prompt_token_ids(
            request,
            vocabulary=self.vocabulary,
            seed=self.seed,
            salt=self.salt,
            prefix_block_tokens=self.prefix_block_tokens,
        )
        body: dict[str, object] = {"model": self.endpoint.model}
        if self.api == "completions":
            body["prompt"] = ids
        elif self.decode is None:
            raise ConfigError("api='chat' sends text, so replay needs decode=; give a tokenizer's")
        else:
            body["messages"] = [{"role": "user", "content": self.decode(ids)}]
        body |= {"max_tokens": request.output_tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if self.extensions:
            # Special tokens are kept so that each token is text and the stream shows all of them.
            body |= {
                "min_tokens": request.output_tokens,
                "ignore_eos": True,
                "skip_special_tokens": False,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        return body


class PreparedRequests:
    """Rendered requests in sending order, kept ahead of their sends within a memory budget."""

    def __init__(
        self, requests: Iterator[ScheduledRequest], render: Callable[[ScheduledRequest], bytes]
    ) -> None:
        self._requests = requests
        self._render = render
        self._ready: deque[tuple[ScheduledRequest, bytes]] = deque()
        self._bytes = 0

    def fill(self, count: int | None = None) -> None:
        """Render ``count`` more, or as many as the budget of 256 MiB holds."""
        while self._bytes < PREPARED_LIMIT_BYTES and count != 0:
            request = next(self._requests, None)
            if request is None:
                return
            data = self._render(request)
            self._bytes += len(data)
            self._ready.append((request, data))
            count = None if count is None else count - 1

    def pop(self) -> tuple[ScheduledRequest, bytes] | None:
        """Return the next request and its bytes, None after the last."""
        if not self._ready:
            self.fill(1)
        if not self._ready:
            return None
        request, data = self._ready.popleft()
        self._bytes -= len(data)
        return request, data


def _header_token(text: str) -> bytes:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in text).encode()
