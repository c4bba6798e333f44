"""A load point: one offered load held for a window."""

from dataclasses import dataclass
from enum import StrEnum


class LoadKind(StrEnum):
    """Open loop (absolute send times) or closed loop (a fixed number in flight)."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One load to offer.

    rate_scale multiplies the traffic's own rate (open loop); concurrency is the number of requests
    kept in flight (closed loop); exactly one is given. repeat tells repeats of one load apart.
    whole_s: where the load is only the beginning of a longer one, that one's seconds: both are
    then windows of one schedule.
    """

    kind: LoadKind
    duration_s: float
    rate_scale: float | None = None
    concurrency: int | None = None
    repeat: int = 0
    whole_s: float | None = None

    @property
    def name(self) -> str:
        """Return a short name that is unique within a trial, for example ``x1.00`` or ``c16``."""
        load = f"x{self.rate_scale:.2f}" if self.kind is LoadKind.OPEN else f"c{self.concurrency}"
        return load if self.repeat == 0 else f"{load}_r{self.repeat}"
