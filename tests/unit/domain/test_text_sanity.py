from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.errors import InfeasibleError
from tasks.domain.text_sanity import (
    Completion,
    TextFlag,
    TextProbe,
    probe_texts,
    require_sane,
    text_flag,
)


def cut(text: str) -> Completion:
    return Completion(text=text, finish_reason="length")


def test_the_samples_of_degenerate_output_are_flagged(shared_dir: Path) -> None:
    case = yaml.safe_load((shared_dir / "cases" / "e-02.yaml").read_text())
    samples = tuple(Completion(**sample) for sample in case["input"]["samples"])
    probe = probe_texts(samples)
    assert list(probe.flags) == case["expected"]["flags"]
    assert probe.degenerate_frac == case["expected"]["degenerate_rate"]


@pytest.mark.parametrize(
    "text",
    [
        "| name | age |\n|------|-----|\n| Anna | 31 |\n| Boris | 45 |\n| Chen | 27",
        "```python\nfor i in range(10):\n    print(i)\n```\nThis prints the digits",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "ha ha ha, said the clown, and the children laughed",
    ],
)
def test_ordinary_text_that_was_cut_off_is_fine(text: str) -> None:
    assert text_flag(cut(text)) is None


def test_a_ruler_that_ended_by_itself_is_fine() -> None:
    assert text_flag(Completion(text="-" * 40, finish_reason="stop")) is None


def test_a_loop_of_a_few_words_is_flagged() -> None:
    assert text_flag(cut("I am here. " * 8)) is TextFlag.DEGENERATE_LOOP


def test_a_small_model_that_repeats_a_whole_sentence_is_not_broken() -> None:
    assert text_flag(cut("The dog jumped on the couch. " * 5)) is None


def test_a_phrase_said_three_times_is_no_loop_yet() -> None:
    assert text_flag(cut("The house is big and old. " * 3)) is None


def test_one_degenerate_text_in_twenty_is_tolerated_and_two_are_not() -> None:
    fine, bad = None, TextFlag.DEGENERATE_SINGLE_CHAR
    require_sane(TextProbe(flags=(bad,) + (fine,) * 19))
    with pytest.raises(InfeasibleError) as caught:
        require_sane(TextProbe(flags=(bad, bad) + (fine,) * 18))
    assert caught.value.code == "DEGENERATE_OUTPUT"
    assert "10 % of n=20" in str(caught.value)
    assert "dtype" in str(caught.value) and "tensor_parallel_size" in str(caught.value)


@settings(deadline=None)
@given(st.sampled_from("!?.,aé世"), st.integers(16, 200))
def test_one_character_alone_is_always_flagged(char: str, length: int) -> None:
    assert text_flag(cut(char * length)) is TextFlag.DEGENERATE_SINGLE_CHAR


@settings(deadline=None)
@given(st.text(alphabet=" \n\t", max_size=30), st.sampled_from(["stop", "length", None]))
def test_nothing_but_white_space_is_empty(text: str, reason: str | None) -> None:
    assert text_flag(Completion(text=text, finish_reason=reason)) is TextFlag.EMPTY_TEXT
