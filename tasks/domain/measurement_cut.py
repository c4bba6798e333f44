"""The records of one load point, cut to the measured part of the schedule and counted.

Knows which requests and tokens belong to the part; knows no rate and no flag.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import MeasurementInvalidError
from tasks.domain.measurement_windows import InFlight, in_flight
from tasks.domain.percentiles import Latency, latency_of
from tasks.domain.request_record import RequestRecord
from tasks.domain.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCut:
    """All records, and those due in [start_s, end_s] with whether each kept the SLO.

    Requests of the warm-up are no part of ``measured``; what they have in flight, and what they
    finish, inside the part still counts as the server's work there.
    """

    records: tuple[RequestRecord, ...]
    measured: tuple[RequestRecord, ...]
    good: tuple[bool, ...]
    start_s: float
    end_s: float

    @classmethod
    def of(
        cls, records: Sequence[RequestRecord], *, slo: Slo, start_s: float, end_s: float
    ) -> "RecordCut":
        """Return the cut; requests due before ``start_s`` are not measured.

        Raises:
            MeasurementInvalidError: where no request is left.
        """
        measured = tuple(r for r in records if r.due_s >= start_s)
        if end_s <= start_s or not measured:
            raise MeasurementInvalidError(
                f"{len(measured)} of {len(records)} requests were due after warmup_s={start_s} of "
                f"schedule_duration_s={end_s}; needed at least one: shorten the warm-up",
                code="EMPTY_WINDOW",
            )
        good = tuple(
            r.ok and not slo.violations(ttft_s=r.ttft_s, tpot_s=r.tpot_s, e2e_s=r.e2e_s)
            for r in measured
        )
        return cls(
            records=tuple(records), measured=measured, good=good, start_s=start_s, end_s=end_s
        )

    @property
    def ok(self) -> tuple[RequestRecord, ...]:
        """Return the measured requests that succeeded."""
        return tuple(r for r in self.measured if r.ok)

    @property
    def spans(self) -> InFlight:
        """Return due time to end of every request."""
        return in_flight(self.records, since_send=False)

    @property
    def errors(self) -> tuple[tuple[str, int], ...]:
        """Return (code, count) of the measured requests that failed, sorted."""
        codes = (r.error_code for r in self.measured if r.error_code is not None)
        return tuple(sorted(Counter(codes).items()))

    @property
    def ended_inside(self) -> int:
        """Return how many successes ended inside the part."""
        ends = (r.last_token_s for r in self.records if r.ok and r.last_token_s is not None)
        return sum(self.start_s <= end <= self.end_s for end in ends)

    @property
    def output_tokens(self) -> float:
        """Return completion tokens of successes that arrived inside the part."""
        return sum(_tokens_between(r, self.start_s, self.end_s) for r in self.records if r.ok)

    @property
    def input_tokens(self) -> int:
        """Return prompt tokens of successes whose first token came inside the part."""
        return sum(
            r.asked_prompt_tokens if r.prompt_tokens is None else r.prompt_tokens
            for r in self.records
            if r.ok
            and r.first_token_s is not None
            and self.start_s <= r.first_token_s <= self.end_s
        )


def token_gaps(records: Sequence[RequestRecord]) -> Latency:
    """Return gaps per token: a chunk of k tokens gives k gaps of (t - previous t) / k."""
    gaps: list[NDArray[np.float64]] = [np.empty(0)]
    owners: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for owner, record in enumerate(records):
        if len(record.stamps) < 2:
            continue
        times = np.array([t for t, _ in record.stamps], dtype=np.float64)
        tokens = np.array([k for _, k in record.stamps[1:]], dtype=np.int64)
        gaps.append(np.repeat(np.diff(times) / np.maximum(tokens, 1), tokens))
        owners.append(np.full(int(tokens.sum()), owner, dtype=np.int64))
    return latency_of("itl", np.concatenate(gaps), clusters=np.concatenate(owners))


def drift_frac(pairs: Sequence[tuple[int, int | None]]) -> float | None:
    """Return tokens used / tokens asked - 1 over requests whose usage is known."""
    known = [(asked, used) for asked, used in pairs if used is not None]
    asked_sum = sum(asked for asked, _ in known)
    return sum(used for _, used in known) / asked_sum - 1 if asked_sum > 0 else None


def _tokens_between(record: RequestRecord, start: float, end: float) -> float:
    """Return the record's tokens that arrived between two times; evenly spread without stamps."""
    carried = sum(k for _, k in record.stamps)
    if carried > 0:
        inside = sum(k for t, k in record.stamps if start <= t <= end)
        return record.tokens * inside / carried
    last = record.last_token_s
    first = last if record.first_token_s is None else record.first_token_s
    if first is None or last is None:
        return 0.0
    if last <= first:
        return float(record.tokens) if start <= last <= end else 0.0
    inside_s = max(0.0, min(last, end) - max(first, start))
    return record.tokens * inside_s / (last - first)
