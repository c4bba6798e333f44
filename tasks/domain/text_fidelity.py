"""How closely a checkpoint predicts a fixed text: perplexity, and divergence from a reference.

Every token of the text is a measurement, so this sees damage that a few hundred questions cannot.
Knows log-probabilities only. The divergence uses what an engine returns, the most likely tokens.
"""

import math
from dataclasses import dataclass

from tasks.domain.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrediction:
    """What a model said before one token of the text.

    token_id: the token that came. logprob: its natural-log probability. top: (token id, logprob)
    of the most likely tokens.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFidelity:
    """Two checkpoints on one text of n tokens.

    reference_perplexity, candidate_perplexity: exp of the mean negative log-probability.
    mean_kl: mean divergence of the candidate from the reference in nats a token.
    top_agreement_frac: share of tokens for which both have the same most likely token.
    """

    n_tokens: int
    reference_perplexity: float
    candidate_perplexity: float
    mean_kl: float
    top_agreement_frac: float


def perplexity(predictions: tuple[TokenPrediction, ...]) -> float:
    """Return exp(-mean log-probability) of the text's own tokens."""
    return math.exp(-sum(p.logprob for p in predictions) / len(predictions))


def compare_predictions(
    reference: tuple[TokenPrediction, ...], candidate: tuple[TokenPrediction, ...]
) -> TextFidelity:
    """Return perplexities, mean divergence and agreement of two checkpoints on one text.

    Raises:
        EvaluationError: if the texts' tokens differ or there are none.
    """
    if not reference or [p.token_id for p in reference] != [p.token_id for p in candidate]:
        raise EvaluationError(
            f"the two checkpoints were read different tokens (n={len(reference)} and "
            f"{len(candidate)}); send the same text with the same tokenizer to both",
            code="EVAL_ITEMS_DIFFER",
        )
    pairs = list(zip(reference, candidate, strict=True))
    agreed = sum(_best(a) == _best(b) for a, b in pairs)
    return TextFidelity(
        n_tokens=len(pairs),
        reference_perplexity=perplexity(reference),
        candidate_perplexity=perplexity(candidate),
        mean_kl=sum(token_divergence(a, b) for a, b in pairs) / len(pairs),
        top_agreement_frac=agreed / len(pairs),
    )


def token_divergence(reference: TokenPrediction, candidate: TokenPrediction) -> float:
    """Return the divergence of one prediction from another in nats, never more than the true one.

    sum p ln(p / q) over the tokens that both list, with everything else as one token more. Merging
    outcomes can only lower a divergence, so the number is a lower bound and is 0 for equal ones.
    """
    theirs = dict(candidate.top)
    shared = [(p, theirs[token]) for token, p in reference.top if token in theirs]
    listed = sum(_term(math.exp(p), math.exp(q)) for p, q in shared)
    rest_p = 1.0 - sum(math.exp(p) for p, _ in shared)
    rest_q = 1.0 - sum(math.exp(q) for _, q in shared)
    return max(0.0, listed + _term(rest_p, rest_q))


def _term(p: float, q: float) -> float:
    if p <= 0.0:
        return 0.0
    return p * math.log(p / max(q, 1e-12))


def _best(prediction: TokenPrediction) -> int | None:
    return max(prediction.top, key=lambda item: item[1])[0] if prediction.top else None
