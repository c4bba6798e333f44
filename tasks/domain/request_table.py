"""The requests of one load point as columns, for what must be judged again request by request.

Knows records and plain tuples, so that it can lie on disk; arrays are made of it where needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.request_record import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTable:
    """Columns of equal length, sorted by due time; seconds and tokens.

    ttft_s and tpot_s are None for a failed request, tpot_s also for one of fewer than two tokens;
    e2e_s is None where no end was seen. duration_s: the seconds over which they were offered.
    """

    due_s: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    ttft_s: tuple[float | None, ...]
    tpot_s: tuple[float | None, ...]
    e2e_s: tuple[float | None, ...]
    duration_s: float

    @property
    def span_s(self) -> float:
        """Return the seconds from the first due time to the last known end, draining included."""
        ends = [due + e2e for due, e2e in zip(self.due_s, self.e2e_s, strict=True) if e2e]
        return max([self.duration_s, *ends])


def request_table(records: Sequence[RequestRecord], *, duration_s: float) -> RequestTable:
    """Return the columns of one load point's records."""
    ordered = sorted(records, key=lambda r: r.due_s)
    return RequestTable(
        due_s=tuple(r.due_s for r in ordered),
        prompt_tokens=tuple(r.prompt_tokens or r.asked_prompt_tokens for r in ordered),
        output_tokens=tuple(r.tokens if r.ok else r.asked_output_tokens for r in ordered),
        ttft_s=tuple(r.ttft_s if r.ok else None for r in ordered),
        tpot_s=tuple(r.tpot_s if r.ok else None for r in ordered),
        e2e_s=tuple(r.e2e_s for r in ordered),
        duration_s=duration_s,
    )
