"""Single questions to an endpoint: one completion, its models, its version.

Every failure becomes one of the product's errors, so that a caller can tell a dead engine from a
slow one and from a request that can never work.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from tasks.adapters.load_client.event_loop import run_to_end
from tasks.adapters.load_client.pool import Origin
from tasks.adapters.load_client.request_body import PATHS, api_key
from tasks.adapters.load_client.server_errors import (
    context_length_error,
    read_error_body,
    without_secret,
)
from tasks.adapters.load_client.transport import StampingTransport
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import (
    ConfigError,
    EngineDiedError,
    EngineNotReadyError,
    MeasurementInvalidError,
    TuningError,
)

QUESTION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReply:
    """One whole completion; token counts are the server's, None where it gave none."""

    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    latency_s: float


def complete_once(
    endpoint: Endpoint,
    prompt: str | Sequence[int],
    *,
    max_tokens: int,
    timeout_s: float,
    temperature: float = 0.0,
    seed: int | None = None,
) -> CompletionReply:
    """Ask for one completion, not streamed; latency_s is from the call to the whole reply.

    Raises:
        EngineDiedError: nothing listens, the connection broke, or the server answered 5xx.
        EngineNotReadyError: TIMEOUT, or a 429 or 503.
        MeasurementInvalidError: MODEL_NAME_MISMATCH, CONTEXT_LENGTH_EXCEEDED, HTTP_ERROR or
            EMPTY_REPLY.
        ConfigError: UNAUTHORIZED, API_KEY_MISSING, TLS_ERROR or a bad URL.
    """
    body: dict[str, object] = {
        "model": endpoint.model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    if seed is not None:
        body["seed"] = seed
    started_s = time.perf_counter()
    response = _asked(endpoint, "POST", PATHS["completions"], timeout_s=timeout_s, body=body)
    latency_s = time.perf_counter() - started_s
    if not response.is_success:
        raise _refusal(endpoint, response)
    return _reply(endpoint, response, latency_s)


def served_models(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the model names that the server answers to (GET /v1/models).

    Raises:
        TuningError: as ``complete_once``.
    """
    return tuple(str(card["id"]) for card in _model_cards(endpoint) if "id" in card)


def max_model_len(endpoint: Endpoint) -> int | None:
    """Return the served model's max_model_len in tokens, None where the server reports none.

    Raises:
        TuningError: as ``complete_once``.
    """
    for card in _model_cards(endpoint):
        length = card.get("max_model_len")
        if card.get("id") == endpoint.model and isinstance(length, int):
            return length
    return None


def server_version(url: str) -> str | None:
    """Return the version that GET /version reports, None for servers without that route.

    Raises:
        EngineDiedError: nothing listens or the connection broke.
        EngineNotReadyError: no answer in 10 s.
    """
    endpoint = Endpoint(url=url, model="", owned=False)
    response = _asked(endpoint, "GET", "/version", timeout_s=QUESTION_TIMEOUT_S)
    value = _json(response) if response.is_success else None
    version = value.get("version") if isinstance(value, dict) else None
    return version if isinstance(version, str) else None


def _model_cards(endpoint: Endpoint) -> list[dict[str, object]]:
    response = _asked(endpoint, "GET", "/v1/models", timeout_s=QUESTION_TIMEOUT_S)
    if not response.is_success:
        raise _refusal(endpoint, response)
    value = _json(response)
    cards = value.get("data") if isinstance(value, dict) else None
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


def _asked(
    endpoint: Endpoint,
    method: str,
    path: str,
    *,
    timeout_s: float,
    body: dict[str, object] | None = None,
) -> httpx.Response:
    Origin.of(endpoint.url)
    key = api_key(endpoint)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = endpoint.url.rstrip("/") + path

    async def ask() -> httpx.Response:
        # httpx limits each read; the sum of them is limited here.
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(transport=StampingTransport(), timeout=timeout_s) as client,
        ):
            return await client.request(method, url, json=body, headers=headers)

    try:
        return run_to_end(ask)
    except (httpx.TimeoutException, TimeoutError) as error:
        raise EngineNotReadyError(
            f"{method} {url} gave no reply within timeout_s={timeout_s:g}: {error}; "
            "wait for the engine or raise the timeout",
            code="TIMEOUT",
        ) from error
    except httpx.TransportError as error:
        if isinstance(error.__cause__, ssl.SSLError):
            raise ConfigError(
                f"{method} {url} failed: {error}; correct the endpoint url, or name the CA file "
                "that signed the server's certificate in SSL_CERT_FILE",
                code="TLS_ERROR",
            ) from error
        raise EngineDiedError(
            f"{method} {url} failed: {error}; check that the engine runs and listens there"
        ) from error


def _refusal(endpoint: Endpoint, response: httpx.Response) -> TuningError:
    status = response.status_code
    message = without_secret(read_error_body(response.content).message, api_key(endpoint))
    seen = f"{response.request.method} {response.request.url} answered HTTP {status}: {message}"
    if status in (401, 403):
        return ConfigError(
            f"{seen}; set api_key_env={endpoint.api_key_env!r} to a variable with a valid key",
            code="UNAUTHORIZED",
        )
    if status in (429, 503):
        return EngineNotReadyError(f"{seen}; the server takes no request now", code="OVERLOADED")
    if status >= 500:
        return EngineDiedError(f"{seen}; see the engine's log")
    length = context_length_error(message)
    if length is not None:
        return MeasurementInvalidError(
            f"{seen} (limit={length.limit_tokens} requested={length.requested_tokens}); "
            "shorten the request or raise max_model_len",
            code="CONTEXT_LENGTH_EXCEEDED",
        )
    if status == 404 and response.request.url.path.endswith(PATHS["completions"]):
        served = served_models(endpoint)
        if endpoint.model not in served:
            return MeasurementInvalidError(
                f"{seen}; model {endpoint.model!r} is not served there, served names are "
                f"{list(served)}; use one of them",
                code="MODEL_NAME_MISMATCH",
            )
    return MeasurementInvalidError(f"{seen}; the request cannot work as it is", code="HTTP_ERROR")


def _reply(endpoint: Endpoint, response: httpx.Response, latency_s: float) -> CompletionReply:
    value = _json(response)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(choices, list) or not choices:
        raise MeasurementInvalidError(
            f"{response.request.url} answered HTTP 200 without choices: {response.text[:200]!r}; "
            f"is model={endpoint.model!r} a completion model?",
            code="EMPTY_REPLY",
        )
    usage = value.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    finish = choices[0].get("finish_reason")
    return CompletionReply(
        text=str(choices[0].get("text") or ""),
        prompt_tokens=counts.get("prompt_tokens"),
        completion_tokens=counts.get("completion_tokens"),
        finish_reason=finish if isinstance(finish, str) else None,
        latency_s=latency_s,
    )


def _json(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None
