"""What an accuracy evaluation says, and whether a candidate answers as well as the reference.

Knows reports on the same items. It never calls noise a regression, a small set a proof, or an
evaluation at chance level an equality.
"""

from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.accuracy_run import (
    AccuracyRun,
    Protocol,
    at_chance,
    is_tied,
    require_same_protocol,
)
from tasks.domain.errors import EvaluationError
from tasks.domain.paired_shares import (
    drop_bounds,
    items_that_would_decide,
    mcnemar_exact_p,
)
from tasks.domain.percentiles import wilson_interval

MAX_TIED_FRAC = 0.5


class AccuracyFlag(StrEnum):
    """Why a report is invalid."""

    EVAL_NOT_DISCRIMINATING = "EVAL_NOT_DISCRIMINATING"


class AccuracyVerdict(StrEnum):
    """PASS and FAIL are shown; INCONCLUSIVE asks for more items; INVALID for another evaluation."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyComparison:
    """The outcome of comparing two reports.

    drop_frac: reference minus candidate, so that a loss is positive; low, high: its one-sided
    bounds at ``confidence`` each. reference_only, candidate_only: items that only one got right.
    items_that_would_decide: None where the verdict stands or no number of items would do.
    """

    verdict: AccuracyVerdict
    reason: str
    n: int
    margin_frac: float
    confidence: float
    drop_frac: float | None = None
    low: float | None = None
    high: float | None = None
    reference_only: int | None = None
    candidate_only: int | None = None
    mcnemar_exact_p: float | None = None
    items_that_would_decide: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport:
    """Accuracy of one checkpoint under one protocol.

    acc: share of right items; low, high: Wilson interval at ``confidence``; chance: share that
    guessing gets; tied_frac: share of items whose best score is shared by two choices or more.
    flags: empty means that the report may be compared.
    """

    checkpoint_sha256: str
    n: int
    acc: float
    low: float
    high: float
    confidence: float
    chance: float
    tied_frac: float
    protocol: Protocol
    item_ids: tuple[str, ...]
    item_correct: tuple[bool, ...]
    flags: tuple[AccuracyFlag, ...]
    seconds: float | None = None

    @property
    def valid(self) -> bool:
        """Whether the report may be compared with another."""
        return not self.flags

    @property
    def text(self) -> str:
        """Return the report in one line for a person."""
        line = (
            f"{self.protocol.task} {100 * self.acc:.1f} % of n={self.n} items "
            f"({100 * self.low:.1f} to {100 * self.high:.1f} at {100 * self.confidence:.0f} %; "
            f"chance {100 * self.chance:.0f} %)"
        )
        return line if self.valid else f"INVALID ({', '.join(self.flags)}): {line}"


def report_accuracy(
    run: AccuracyRun, *, checkpoint_sha256: str, confidence: float = 0.95
) -> AccuracyReport:
    """Return the report of a run, flagged where it cannot tell a good model from a bad one.

    EVAL_NOT_DISCRIMINATING: the accuracy is not more than 2 standard errors above chance, with
    SE = sqrt(chance (1 - chance) / n), or more than half of the items have a tied best score.

    Raises:
        EvaluationError: if the run has no items or its tuples differ in length.
    """
    n = len(run.item_correct)
    if n == 0 or len(run.item_ids) != n or len(run.choice_scores) != n:
        raise EvaluationError(
            f"a run needs as many ids and scores as answers, at least one; it has "
            f"item_ids={len(run.item_ids)}, item_correct={n}, "
            f"choice_scores={len(run.choice_scores)}; evaluate again"
        )
    acc, chance = sum(run.item_correct) / n, 1.0 / run.n_choices
    tied = sum(is_tied(scores) for scores in run.choice_scores) / n
    flagged = at_chance(acc, n=n, chance=chance) or tied > MAX_TIED_FRAC
    low, high = wilson_interval(sum(run.item_correct), n, confidence=confidence)
    return AccuracyReport(
        checkpoint_sha256=checkpoint_sha256,
        n=n,
        acc=acc,
        low=low,
        high=high,
        confidence=confidence,
        chance=chance,
        tied_frac=tied,
        protocol=run.protocol,
        item_ids=run.item_ids,
        item_correct=run.item_correct,
        flags=(AccuracyFlag.EVAL_NOT_DISCRIMINATING,) if flagged else (),
        seconds=run.seconds,
    )


def compare_accuracy(
    reference: AccuracyReport,
    candidate: AccuracyReport,
    *,
    margin_frac: float = 0.01,
    confidence: float = 0.95,
) -> AccuracyComparison:
    """Compare two reports item by item and judge the candidate's drop against the margin.

    PASS if the upper bound of the drop is under the margin, FAIL if the lower bound is over it,
    INCONCLUSIVE between: a drop that is certain but smaller than the margin passes.

    Raises:
        EvaluationError: EVAL_PROTOCOL_MISMATCH if the protocols differ, EVAL_ITEMS_DIFFER if the
            reports answer other items.
    """
    require_same_protocol(reference.protocol, candidate.protocol)
    if reference.item_ids != candidate.item_ids:
        raise EvaluationError(
            f"the reports answer different items ({reference.n} and {candidate.n}); a paired "
            "comparison needs the same ones in the same order, so evaluate both again",
            code="EVAL_ITEMS_DIFFER",
        )
    invalid = [
        f"{name} is {report.text}"
        for name, report in (("the reference", reference), ("the candidate", candidate))
        if not report.valid
    ]
    if invalid:
        return AccuracyComparison(
            verdict=AccuracyVerdict.INVALID,
            reason="; ".join(invalid),
            n=reference.n,
            margin_frac=margin_frac,
            confidence=confidence,
        )
    pairs = list(zip(reference.item_correct, candidate.item_correct, strict=True))
    return compare_counts(
        n=reference.n,
        reference_only=sum(a and not b for a, b in pairs),
        candidate_only=sum(b and not a for a, b in pairs),
        margin_frac=margin_frac,
        confidence=confidence,
    )


def compare_counts(
    *,
    n: int,
    reference_only: int,
    candidate_only: int,
    margin_frac: float = 0.01,
    confidence: float = 0.95,
) -> AccuracyComparison:
    """Judge a drop from its discordant counts alone; see ``compare_accuracy`` for the rule."""
    drop = (reference_only - candidate_only) / n
    low, high = drop_bounds(n, reference_only, candidate_only, confidence=confidence)
    if high < margin_frac:
        verdict = AccuracyVerdict.PASS
    elif low > margin_frac:
        verdict = AccuracyVerdict.FAIL
    else:
        verdict = AccuracyVerdict.INCONCLUSIVE
    needed = None
    if verdict is AccuracyVerdict.INCONCLUSIVE:
        needed = items_that_would_decide(
            n, reference_only, candidate_only, margin_frac=margin_frac, confidence=confidence
        )
    return AccuracyComparison(
        verdict=verdict,
        reason=_reason(verdict, n, (drop, low, high), margin_frac, confidence, needed),
        n=n,
        margin_frac=margin_frac,
        confidence=confidence,
        drop_frac=drop,
        low=low,
        high=high,
        reference_only=reference_only,
        candidate_only=candidate_only,
        mcnemar_exact_p=mcnemar_exact_p(reference_only, candidate_only),
        items_that_would_decide=needed,
    )


def _reason(
    verdict: AccuracyVerdict,
    n: int,
    drop_and_bounds: tuple[float, float, float],
    margin_frac: float,
    confidence: float,
    needed: int | None,
) -> str:
    drop, low, high = (100.0 * value for value in drop_and_bounds)
    seen = (
        f"drop {drop:.2f} points on n={n} items, bounds {low:.2f} to {high:.2f} "
        f"(one-sided {100 * confidence:.0f} %), margin {100 * margin_frac:.2f}"
    )
    if verdict is not AccuracyVerdict.INCONCLUSIVE:
        return seen
    if needed is None:
        return f"{seen}; the drop sits on the margin and no realistic number of items decides"
    return f"{seen}; about {needed} items would decide at this rate of discordance"
