"""Whether a completion is text at all: an engine with broken weights runs fast and says nothing.

Knows a text and why it ended. It judges form, never truth, and leaves tables and rulers alone.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.errors import InfeasibleError

MAX_DEGENERATE_FRAC = 0.05
SINGLE_CHAR_FRAC = 0.8
SINGLE_CHAR_LENGTH = 16
LOOP_LENGTH = 32
LOOP_CYCLES = 4
LOOP_PERIOD = 16
LOOP_MATCH_FRAC = 0.95
CUT_OFF = "length"


class TextFlag(StrEnum):
    """What is wrong with a completion."""

    EMPTY_TEXT = "EMPTY_TEXT"
    DEGENERATE_SINGLE_CHAR = "DEGENERATE_SINGLE_CHAR"
    DEGENERATE_LOOP = "DEGENERATE_LOOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A completion's text and the finish reason that the engine gave."""

    text: str
    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProbe:
    """Flags of n completions of the fixed prompts, in the order of the prompts; None is fine."""

    flags: tuple[TextFlag | None, ...]

    @property
    def n(self) -> int:
        """Number of completions."""
        return len(self.flags)

    @property
    def degenerate_frac(self) -> float:
        """Share of completions that are flagged, 0 without any completion."""
        return sum(flag is not None for flag in self.flags) / self.n if self.flags else 0.0

    @property
    def sane(self) -> bool:
        """Whether at most 5 % of the completions are flagged."""
        return self.degenerate_frac <= MAX_DEGENERATE_FRAC


def text_flag(completion: Completion) -> TextFlag | None:
    """Return what is wrong with a completion, None if nothing is.

    A text that ended by itself is judged only for being empty: rulers and tables end, a stuck
    model runs into its token limit. One character with more than 80 % of at least 16 characters
    is a single-character text. A period of at most 16 characters that explains 95 % of at least
    32, four cycles or more, is a loop: broken weights repeat a token or two, while a small model
    in good health, read greedily, may well repeat a whole sentence.
    """
    text = completion.text.strip()
    if not text:
        return TextFlag.EMPTY_TEXT
    if completion.finish_reason != CUT_OFF:
        return None
    _, most = Counter(text).most_common(1)[0]
    if len(text) >= SINGLE_CHAR_LENGTH and most > SINGLE_CHAR_FRAC * len(text):
        return TextFlag.DEGENERATE_SINGLE_CHAR
    return TextFlag.DEGENERATE_LOOP if _loops(text) else None


def probe_texts(completions: tuple[Completion, ...]) -> TextProbe:
    """Return the flags of all completions."""
    return TextProbe(flags=tuple(text_flag(completion) for completion in completions))


def require_sane(probe: TextProbe) -> None:
    """Raise if more than 5 % of the completions are degenerate.

    Raises:
        InfeasibleError: code DEGENERATE_OUTPUT; the trial has no score and is never repeated.
    """
    if probe.sane:
        return
    counts = Counter(flag.value for flag in probe.flags if flag is not None)
    seen = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
    raise InfeasibleError(
        f"{100 * probe.degenerate_frac:.0f} % of n={probe.n} probe completions are degenerate "
        f"({seen}), at most {100 * MAX_DEGENERATE_FRAC:.0f} % are allowed; suspect dtype "
        "(float16 overflow), tensor_parallel_size (try 1) and the checkpoint's scales",
        code="DEGENERATE_OUTPUT",
    )


def _loops(text: str) -> bool:
    length = len(text)
    if length < LOOP_LENGTH:
        return False
    for period in range(1, min(LOOP_PERIOD, length // LOOP_CYCLES) + 1):
        pairs = length - period
        same = sum(a == b for a, b in zip(text, text[period:], strict=False))
        if same >= LOOP_MATCH_FRAC * pairs:
            return True
    return False
