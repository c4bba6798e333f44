"""Server's token counts against the client's: where two countings may differ, and where not."""

from tasks.domain.token_check import CountedAnswer, token_check


def answer(server: int | None, client: int, *, stopped: bool = False) -> CountedAnswer:
    return CountedAnswer(
        prompt_server=None if server is None else 48,
        prompt_client=48,
        answer_server=server,
        answer_client=client,
        stopped=stopped,
    )


def test_equal_counts_agree_and_the_end_token_is_allowed_for() -> None:
    found = token_check([answer(32, 32), answer(8, 7, stopped=True)])
    assert found is not None
    assert found.agrees
    assert (found.answer_server, found.answer_client) == (40, 40)
    assert found.sentence.endswith("(n=2 answers): they agree")


def test_one_token_an_answer_may_merge_otherwise_and_more_may_not() -> None:
    slack = token_check([answer(32, 31), answer(32, 31)])
    assert slack is not None
    assert slack.agrees
    apart = token_check([answer(32, 24), answer(32, 31)])
    assert apart is not None
    assert not apart.agrees
    assert "is this the served model's tokenizer?" in apart.sentence


def test_a_server_without_usage_is_not_checked() -> None:
    assert token_check([answer(None, 3)]) is None
