"""Sends the fixed sanity prompts to an endpoint and looks at what comes back."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tasks.adapters.lm_eval_harness.prompt_logprobs import TIMEOUT_S, post_completion
from tasks.domain.endpoint import Endpoint
from tasks.domain.errors import ConfigError
from tasks.domain.text_sanity import Completion, TextProbe, probe_texts

LEAST_PROMPTS = 20
MAX_TOKENS = 32
AT_ONCE = 10


def sanity_probe(
    endpoint: Endpoint, prompts: tuple[str, ...], *, client: httpx.Client | None = None
) -> TextProbe:
    """Return the flags of one greedy completion of at most 32 tokens per prompt.

    Raises:
        EngineDiedError: if nothing answers. EvaluationError: if the server refuses.
    """
    if client is not None:
        with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="sanity") as pool:
            asked = [pool.submit(_complete, endpoint, prompt, client) for prompt in prompts]
            return probe_texts(tuple(answer.result() for answer in asked))
    with httpx.Client(timeout=TIMEOUT_S) as own:
        return sanity_probe(endpoint, prompts, client=own)


def read_prompts(path: Path) -> tuple[str, ...]:
    """Return the prompts of a text file, one a line.

    Raises:
        ConfigError: if the file cannot be read or holds fewer than 20 prompts.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}; give the sanity prompts") from error
    prompts = tuple(line for line in text.splitlines() if line.strip())
    if len(prompts) < LEAST_PROMPTS:
        raise ConfigError(f"{path}: {len(prompts)} prompts, at least {LEAST_PROMPTS} are needed")
    return prompts


def _complete(endpoint: Endpoint, prompt: str, client: httpx.Client) -> Completion:
    body = {"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0}
    answer = post_completion(endpoint, body, client=client)
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    choice = first if isinstance(first, dict) else {}
    reason = choice.get("finish_reason")
    return Completion(
        text=str(choice.get("text") or ""),
        finish_reason=reason if isinstance(reason, str) else None,
    )
