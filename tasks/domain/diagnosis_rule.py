"""What a diagnosis rule is: conditions over facts, with a third answer where a fact is missing."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from tasks.domain.diagnosis_facts import Facts

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lt,
    "<=": le,
    "=": eq,
    ">=": ge,
    ">": gt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """``fact op limit``; a limit that is a name is another fact, times ``factor``."""

    fact: str
    op: str
    limit: float | str
    factor: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        """The facts that must be known."""
        return (self.fact, self.limit) if isinstance(self.limit, str) else (self.fact,)

    def holds(self, facts: Facts) -> bool | None:
        """Tell whether the condition is true; None where a fact is missing."""
        value = facts.get(self.fact)
        limit = facts.get(self.limit) if isinstance(self.limit, str) else self.limit
        if value is None or limit is None:
            return None
        return _COMPARE[self.op](value, limit * self.factor)

    def seen(self, facts: Facts) -> str:
        """Return the condition with the value seen, for example ``tpot_p99_s 0.08 > 0.03``."""
        limit = facts.get(self.limit) if isinstance(self.limit, str) else self.limit
        bound = "unknown" if limit is None else f"{limit * self.factor:.4g}"
        value = facts.get(self.fact)
        return f"{self.fact} {'unknown' if value is None else f'{value:.4g}'} {self.op} {bound}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: conditions that must all hold, what they mean, what to try.

    layer: the bottleneck's name. cause: whether the row names a cause (a symptom, such as a
    high TPOT, only says where it hurts).
    """

    id: str
    source: str
    layer: str
    when: tuple[When, ...]
    finding: str
    try_next: tuple[str, ...]
    cause: bool = True

    def holds(self, facts: Facts) -> bool | None:
        """False if any condition is false, else None if any is unknown, else True."""
        verdicts = [condition.holds(facts) for condition in self.when]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """Return the facts that the rule needs and that were not measured."""
        needed = [name for condition in self.when for name in condition.needs]
        return tuple(dict.fromkeys(name for name in needed if facts.get(name) is None))
