import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.errors import ConfigError
from tasks.domain.prompts import PromptVocabulary, prompt_token_ids
from tasks.domain.schedule import ScheduledRequest

VOCABULARY = PromptVocabulary(token_ids=tuple(range(1000, 9000)))


def request_of(tokens: int, *, index: int = 0, blocks: tuple[int, ...] = ()) -> ScheduledRequest:
    return ScheduledRequest(
        index=index, due_s=0.0, prompt_tokens=tokens, output_tokens=1, prefix_blocks=blocks
    )


def ids_of(request: ScheduledRequest, *, seed: int = 7, salt: str = "run-1") -> list[int]:
    return prompt_token_ids(
        request, vocabulary=VOCABULARY, seed=seed, salt=salt, prefix_block_tokens=16
    )


@given(
    tokens=st.integers(1, 400),
    blocks=st.lists(st.integers(0, 10**12), max_size=8).map(tuple),
    index=st.integers(0, 10**6),
)
def test_a_prompt_has_exactly_the_asked_number_of_ids_of_the_vocabulary(
    tokens: int, blocks: tuple[int, ...], index: int
) -> None:
    ids = ids_of(request_of(tokens, index=index, blocks=blocks))
    assert len(ids) == tokens
    assert set(ids) <= set(VOCABULARY.token_ids)


@given(
    shared=st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple),
    tail=st.integers(0, 60),
)
def test_equal_blocks_are_equal_tokens_and_the_rest_differs(
    shared: tuple[int, ...], tail: int
) -> None:
    prefix = 16 * len(shared)
    first = ids_of(request_of(prefix + tail, index=1, blocks=shared))
    second = ids_of(request_of(prefix + tail, index=2, blocks=shared))
    assert first[:prefix] == second[:prefix]
    # 8 ids of 8000: equal by chance once in 8000**8.
    assert tail < 8 or first[prefix:] != second[prefix:]


def test_a_prefix_longer_than_the_prompt_is_cut_at_the_prompt() -> None:
    whole = ids_of(request_of(48, blocks=(1, 2, 3)))
    assert ids_of(request_of(20, index=5, blocks=(1, 2, 3))) == whole[:20]


def test_another_salt_or_seed_gives_other_blocks_and_other_fresh_text() -> None:
    request = request_of(64, blocks=(1, 2))
    base = ids_of(request)
    for other in (ids_of(request, salt="run-2"), ids_of(request, seed=8)):
        assert all(other[i : i + 16] != base[i : i + 16] for i in (0, 16, 32, 48))


def test_the_same_run_is_made_again_bit_for_bit() -> None:
    # Pinned: a change of the drawing changes every stored measurement's text.
    assert ids_of(request_of(4, blocks=(3,))) == ids_of(request_of(4, index=9, blocks=(3,)))
    # SHAKE-128 of [7, "run-1", "fresh", 1] in 32-bit words, modulo 8000, plus 1000.
    assert ids_of(request_of(4, index=1)) == [1335, 3842, 4435, 6227]


def test_a_vocabulary_needs_two_ids_and_no_negative_one() -> None:
    with pytest.raises(ConfigError, match="1 ids"):
        PromptVocabulary(token_ids=(5,))
    with pytest.raises(ConfigError, match="negative"):
        PromptVocabulary(token_ids=(5, -1))
