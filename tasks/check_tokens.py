"""The verb that checks the server's token counts with the client's own tokenizer."""

from tasks.adapters.client_tokenizer import ClientTokenizer
from tasks.adapters.load_client.control import complete_once
from tasks.domain.endpoint import Endpoint
from tasks.domain.prompts import PromptVocabulary
from tasks.domain.token_check import CountedAnswer, TokenCheck, token_check

ANSWERS = 5
PROMPT_TOKENS = 48
ANSWER_TOKENS = 32
TIMEOUT_S = 120.0


def check_tokens(
    endpoint: Endpoint, tokenizer: ClientTokenizer, vocabulary: PromptVocabulary, *, salt: str
) -> TokenCheck | None:
    """Ask for a few answers to prompts of text and compare the counts; None without usage.

    Raises:
        TuningError: as ``complete_once``, or where the tokenizer cannot be read.
    """
    answers = []
    for number in range(ANSWERS):
        text = tokenizer.decode(vocabulary.drawn((salt, "token check", number), PROMPT_TOKENS))
        reply = complete_once(endpoint, text, max_tokens=ANSWER_TOKENS, timeout_s=TIMEOUT_S)
        answers.append(
            CountedAnswer(
                prompt_server=reply.prompt_tokens,
                prompt_client=tokenizer.count(text, special=True),
                answer_server=reply.completion_tokens,
                answer_client=tokenizer.count(reply.text, special=False),
                stopped=reply.finish_reason == "stop",
            )
        )
    return token_check(answers)
