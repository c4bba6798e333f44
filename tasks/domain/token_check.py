"""The server's token counts held against the client's own tokenizer.

Throughput is in the server's tokens; a server that counts otherwise, or serves another model than
the one named, shows here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.validity import TOKEN_DRIFT_LIMIT_FRAC

# Text that is encoded again may merge differently at a few places: one token an answer is no fault.
SLACK_TOKENS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAnswer:
    """One prompt and its answer; *_server by usage, None where it gave none; *_client re-encoded.

    stopped: the server counts the end-of-text token, which the answer's text does not show.
    """

    prompt_server: int | None
    prompt_client: int
    answer_server: int | None
    answer_client: int
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    """Sums over n answers whose usage is known, and whether the two counts agree.

    They agree where either differs by at most 2 % or by one token an answer.
    """

    n: int
    prompt_server: int
    prompt_client: int
    answer_server: int
    answer_client: int
    agrees: bool
    sentence: str


def token_check(answers: Sequence[CountedAnswer]) -> TokenCheck | None:
    """Return the check, None where the server reported no usage at all."""
    known = [
        (a, a.prompt_server, a.answer_server)
        for a in answers
        if a.prompt_server is not None and a.answer_server is not None
    ]
    if not known:
        return None
    prompt = sum(p for _, p, _ in known), sum(a.prompt_client for a, _, _ in known)
    answer = sum(o for _, _, o in known), sum(a.answer_client + a.stopped for a, _, _ in known)
    agrees = all(_close(server, client, len(known)) for server, client in (prompt, answer))
    told = (
        f"server's usage {prompt[0]} prompt and {answer[0]} answer tokens, client's tokenizer "
        f"{prompt[1]} and {answer[1]} (n={len(known)} answers)"
    )
    verdict = "they agree" if agrees else "they differ: is this the served model's tokenizer?"
    return TokenCheck(
        n=len(known),
        prompt_server=prompt[0],
        prompt_client=prompt[1],
        answer_server=answer[0],
        answer_client=answer[1],
        agrees=agrees,
        sentence=f"{told}: {verdict}",
    )


def _close(server: int, client: int, answers: int) -> bool:
    apart = abs(server - client)
    return apart <= max(TOKEN_DRIFT_LIMIT_FRAC * server, SLACK_TOKENS * answers)
