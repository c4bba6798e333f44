"""When a running load has shown that the engine cannot keep up, and what its records then mean.

A load past the engine's limit is decided long before its end; what is left of it only costs time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tasks.domain.measurement_windows import grows
from tasks.domain.request_record import RequestRecord
from tasks.domain.validity import Flag

LEAST_S = 15.0
HOLDS_S = 5.0
NEAR_HIGHEST_FRAC = 0.9  # below it a burst's queue is being worked off
STOPPED = "STOPPED"
STOPPED_EARLY = "STOPPED_EARLY"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    elapsed_s: float
    in_flight: int
    sent: int


@dataclass(slots=True, kw_only=True)
class DivergenceWatch:
    """Watches the requests in flight; ``stopped_at_s`` is set once they grow as a queue does.

    That needs, for five seconds on end and not before the first 15: growth over the second half
    of the load so far (``grows``) to about its highest yet, and a median TTFT of the last ten
    seconds above the SLO's, or no first token in them at all. The second spares bursts that the
    engine takes in its stride.
    ttft_limit_s: the SLO's TTFT limit, None where it has none and growth alone decides.
    """

    ttft_limit_s: float | None
    stopped_at_s: float | None = None
    _seen: list[_Seen] = field(default_factory=list)
    _since_s: float | None = field(default=None)

    @property
    def diverged(self) -> bool:
        """Tell whether the load is to end now."""
        return self.stopped_at_s is not None

    def take(
        self, *, elapsed_s: float, in_flight: int, done: int, ttft_p50_s: float | None
    ) -> None:
        """Take the load's figures at one moment; done counts requests that have ended."""
        self._seen.append(_Seen(elapsed_s=elapsed_s, in_flight=in_flight, sent=in_flight + done))
        if self.diverged or elapsed_s < LEAST_S:
            return
        if not (self._grows() and self._late(ttft_p50_s)):
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = elapsed_s
        if elapsed_s - self._since_s >= HOLDS_S:
            self.stopped_at_s = elapsed_s

    def _grows(self) -> bool:
        end = self._seen[-1]
        if end.in_flight < NEAR_HIGHEST_FRAC * max(seen.in_flight for seen in self._seen):
            return False
        half = min(self._seen, key=lambda seen: abs(seen.elapsed_s - end.elapsed_s / 2))
        return grows(at_half=half.in_flight, at_end=end.in_flight, arrivals=end.sent - half.sent)

    def _late(self, ttft_p50_s: float | None) -> bool:
        return self.ttft_limit_s is None or ttft_p50_s is None or ttft_p50_s > self.ttft_limit_s


def stopped_records(records: Sequence[RequestRecord], *, at_s: float) -> tuple[RequestRecord, ...]:
    """Return the requests that were due before the stop; those it cut off count as STOPPED."""
    return tuple(
        replace(record, error_code=STOPPED, error_message="cut off: the load was ended early")
        if record.error_code == "CANCELLED"
        else record
        for record in records
        if record.due_s < at_s
    )


def stopped_flag(*, at_s: float, planned_s: float, n: int) -> Flag:
    """Return the remark on a load that was ended because its queue diverged."""
    text = (
        f"ended after {at_s:.0f} of {planned_s:.0f} s: requests in flight kept growing and came "
        f"too late (n={n} requests until then); those it cut off kept no limit"
    )
    return Flag(code=STOPPED_EARLY, sentence=text, invalid=False)
