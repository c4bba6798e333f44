import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.errors import EvaluationError
from tasks.domain.text_fidelity import (
    TokenPrediction,
    compare_predictions,
    perplexity,
    token_divergence,
)


def predict(token: int, *shares: float) -> TokenPrediction:
    top = tuple((i, math.log(share)) for i, share in enumerate(shares))
    return TokenPrediction(token_id=token, logprob=math.log(shares[token]), top=top)


def test_perplexity_is_the_inverse_of_the_geometric_mean() -> None:
    # sqrt(0.5 * 0.125) = 0.25, so perplexity 4
    assert perplexity((predict(0, 0.5, 0.5), predict(0, 0.125, 0.875))) == pytest.approx(4.0)


def test_divergence_of_two_whole_distributions_is_exact() -> None:
    # 0.5 ln(0.5/0.25) + 0.5 ln(0.5/0.75) = 0.3466 - 0.2027 = 0.1438
    divergence = token_divergence(predict(0, 0.5, 0.5), predict(0, 0.25, 0.75))
    assert divergence == pytest.approx(0.1438, abs=5e-5)


def test_unlisted_tokens_count_as_one() -> None:
    # listed: 0.6 ln(0.6/0.3) = 0.4159; rest: 0.4 ln(0.4/0.7) = -0.2238
    divergence = token_divergence(predict(0, 0.6), predict(0, 0.3))
    assert divergence == pytest.approx(0.1920, abs=2e-4)


def test_a_comparison_gives_both_perplexities_and_the_agreement() -> None:
    reference = (predict(0, 0.5, 0.5), predict(0, 0.9, 0.1))
    candidate = (predict(0, 0.25, 0.75), predict(0, 0.9, 0.1))
    fidelity = compare_predictions(reference, candidate)
    assert fidelity.n_tokens == 2
    assert fidelity.mean_kl == pytest.approx(0.1438 / 2, abs=5e-5)
    assert fidelity.candidate_perplexity > fidelity.reference_perplexity
    assert fidelity.top_agreement_frac == 0.5


def test_different_texts_are_refused() -> None:
    with pytest.raises(EvaluationError, match="different tokens"):
        compare_predictions((predict(0, 0.5, 0.5),), (predict(1, 0.5, 0.5),))
    with pytest.raises(EvaluationError, match="n=0"):
        compare_predictions((), ())


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8))
def test_equal_predictions_diverge_by_nothing(weights: list[float]) -> None:
    shares = [weight / (sum(weights) * 1.001) for weight in weights]
    assert token_divergence(predict(0, *shares), predict(0, *shares)) == pytest.approx(
        0.0, abs=1e-9
    )
