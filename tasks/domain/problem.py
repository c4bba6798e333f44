"""One thing that is wrong, or doubtful, with an assignment of engine parameters."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """ERROR: the engine refuses or dies; WARNING: it starts, and a person should know."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding about one parameter.

    code: stable, upper case. name: the parameter as vLLM spells it. sentence: what was seen, what
    is needed and what to do. supported: the values that would do, where they can be listed.
    since: the engine version that brought the rule, where it is known.
    """

    code: str
    name: str
    sentence: str
    severity: Severity = Severity.ERROR
    supported: tuple[str, ...] = ()
    since: str | None = None


def errors(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return only those problems that stop the engine."""
    return tuple(p for p in problems if p.severity is Severity.ERROR)
