"""The raw answers of one accuracy evaluation, and the protocol that they were given under.

Knows answers and scores as numbers; knows neither the harness that asked nor the engine that
answered.
"""

import math
from dataclasses import dataclass, fields

from tasks.domain.errors import EvaluationError

CHANCE_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Everything beside the weights that an accuracy number depends on.

    task_version: of the task's file. chat_template_sha256: None where none is applied.
    tokenizer_sha256: of the tokenizer's files that the harness used. items_sha256: of the item
    file. sampling: how answers are picked. endpoint_kind: ``completions`` or ``chat``.
    item_limit: how many items were asked, None for all. concurrency changes batches and so
    rounding. engine: the server's version, None where it does not say.
    """

    task: str
    task_version: str
    n_shot: int
    add_bos: bool
    chat_template_sha256: str | None
    tokenizer_sha256: str
    items_sha256: str
    sampling: str
    endpoint_kind: str
    item_limit: int | None
    concurrency: int
    harness: str
    engine: str | None = None

    def differences(self, other: "Protocol") -> tuple[str, ...]:
        """Return the names of the fields in which the two protocols differ, in field order."""
        names = (field.name for field in fields(self))
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRun:
    """Raw answers of one evaluation, item by item in the same order.

    choice_scores: per item the log-likelihood of every choice. n_choices is the number of choices
    of each item, so that chance is 1/n_choices.
    """

    item_ids: tuple[str, ...]
    item_correct: tuple[bool, ...]
    choice_scores: tuple[tuple[float, ...], ...]
    n_choices: int
    protocol: Protocol
    seconds: float


def is_tied(scores: tuple[float, ...]) -> bool:
    """Whether two or more choices share the best score, or a score is not a number.

    An infinite or NaN score orders nothing, so such an item counts as tied.
    """
    if not all(math.isfinite(score) for score in scores):
        return True
    return sum(score == max(scores) for score in scores) > 1


def at_chance(acc: float, *, n: int, chance: float) -> bool:
    """Whether an accuracy is at most 2 standard errors above what guessing gets."""
    error = math.sqrt(chance * (1.0 - chance) / n)
    return acc <= chance + CHANCE_STANDARD_ERRORS * error


def require_same_protocol(reference: Protocol, candidate: Protocol) -> None:
    """Raise unless both reports were made under one protocol.

    Raises:
        EvaluationError: code EVAL_PROTOCOL_MISMATCH, naming the fields and both values.
    """
    names = reference.differences(candidate)
    if names:
        pairs = ", ".join(
            f"{name} ({getattr(reference, name)!r} against {getattr(candidate, name)!r})"
            for name in names
        )
        raise EvaluationError(
            f"the two reports were made under different protocols: {pairs}; only equal protocols "
            "are compared, so evaluate the reference again",
            code="EVAL_PROTOCOL_MISMATCH",
        )
