"""Asks a server once whether it returns log-probabilities of the prompt's tokens.

Without them every choice of an item scores the same, and any two checkpoints look equally good.
"""

import os
from collections.abc import Mapping

import httpx

from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EngineDiedError, EvaluationError

PROBE_PROMPT = "2+2=4"
TIMEOUT_S = 120.0


def request_headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the authorization header out of the environment, empty where no key is named."""
    key = os.environ.get(endpoint.api_key_env) if endpoint.api_key_env else None
    return {"Authorization": f"Bearer {key}"} if key else {}


def post_completion(
    endpoint: Endpoint, body: Mapping[str, object], *, client: httpx.Client | None = None
) -> dict[str, object]:
    """Send one completion request and return the reply.

    Raises:
        EngineDiedError: if nothing answers. EvaluationError: if the server refuses the request.
    """
    url = f"{endpoint.url}/v1/completions"
    payload = {"model": endpoint.model, **body}
    try:
        if client is not None:
            reply = client.post(url, json=payload, headers=request_headers(endpoint))
        else:
            reply = httpx.post(
                url, json=payload, headers=request_headers(endpoint), timeout=TIMEOUT_S
            )
    except httpx.HTTPError as error:
        raise EngineDiedError(f"{url} did not answer: {error!r}; see the engine's log") from error
    if not reply.is_success:
        raise EvaluationError(
            f"{url} answered {reply.status_code} for model={endpoint.model!r}: {reply.text[:300]}; "
            "give an OpenAI-compatible completions endpoint and the served model's name"
        )
    answer = reply.json()
    return answer if isinstance(answer, dict) else {}


def require_prompt_logprobs(endpoint: Endpoint, *, client: httpx.Client | None = None) -> None:
    """Raise unless the server echoes a prompt with one log-probability per token.

    Expected are prompt_tokens + 1 entries: those of the prompt (the first is null) and of the one
    generated token.

    Raises:
        EvaluationError: code NO_PROMPT_LOGPROBS with the numbers expected and got.
        EngineDiedError: if nothing answers.
    """
    body = {
        "prompt": PROBE_PROMPT,
        "max_tokens": 1,
        "echo": True,
        "logprobs": 1,
        "temperature": 0,
    }
    answer = post_completion(endpoint, body, client=client)
    expected, got = logprob_entries(answer)
    if expected is None or got != expected:
        wanted = "one entry per prompt token and one more" if expected is None else str(expected)
        raise EvaluationError(
            f"{endpoint.url} returned {got} token_logprobs for an echoed prompt, expected "
            f"{wanted}; log-likelihood tasks would tie on every choice, so serve the model with "
            "an engine that supports echo with logprobs on /v1/completions",
            code="NO_PROMPT_LOGPROBS",
        )


def logprob_entries(answer: Mapping[str, object]) -> tuple[int | None, int]:
    """Return how many log-probabilities a reply should hold (None if unknown) and holds."""
    usage, choices = answer.get("usage"), answer.get("choices")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    expected = tokens + 1 if isinstance(tokens, int) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    logprobs = first.get("logprobs") if isinstance(first, dict) else None
    entries = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    return expected, len(entries) if isinstance(entries, list) else 0
