"""Asks an endpoint how it predicts each token of a fixed text."""

from collections.abc import Mapping, Sequence

import httpx

from tasks.adapters.lm_eval_harness.prompt_logprobs import post_completion
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import EvaluationError
from tasks.domain.text_fidelity import TokenPrediction

TOP = 20


def text_predictions(
    endpoint: Endpoint,
    token_ids: Sequence[int],
    *,
    block_tokens: int = 256,
    client: httpx.Client | None = None,
) -> tuple[TokenPrediction, ...]:
    """Return the predictions of a text, asked in blocks; each block's first token has none.

    Uses vLLM's ``prompt_logprobs`` with the 20 most likely tokens.

    Raises:
        EvaluationError: if the server returns no prompt_logprobs. EngineDiedError: if none answers.
    """
    found: list[TokenPrediction] = []
    for start in range(0, len(token_ids), block_tokens):
        block = list(token_ids[start : start + block_tokens])
        if len(block) < 2:
            break
        body = {"prompt": block, "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP}
        found += block_predictions(block, post_completion(endpoint, body, client=client))
    return tuple(found)


def block_predictions(block: Sequence[int], answer: Mapping[str, object]) -> list[TokenPrediction]:
    """Return the predictions of one block out of a reply.

    Raises:
        EvaluationError: code NO_PROMPT_LOGPROBS if the reply has not one entry per token.
    """
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    entries = first.get("prompt_logprobs") if isinstance(first, dict) else None
    if not isinstance(entries, list) or len(entries) != len(block):
        got = len(entries) if isinstance(entries, list) else 0
        raise EvaluationError(
            f"the server returned {got} prompt_logprobs for {len(block)} tokens; perplexity needs "
            "vLLM's prompt_logprobs",
            code="NO_PROMPT_LOGPROBS",
        )
    pairs = zip(block[1:], entries[1:], strict=True)
    return [_prediction(token, entry) for token, entry in pairs]


def _prediction(token: int, entry: object) -> TokenPrediction:
    table = entry if isinstance(entry, dict) else {}
    scores = {int(key): float(value["logprob"]) for key, value in table.items()}
    if token not in scores:
        raise EvaluationError(f"the server's prompt_logprobs lack the prompt's own token {token}")
    best = sorted(scores.items(), key=lambda item: -item[1])[:TOP]
    return TokenPrediction(token_id=token, logprob=scores[token], top=tuple(best))
