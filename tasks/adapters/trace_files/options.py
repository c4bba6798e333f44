"""What a caller may say about a trace file; nothing here is read from the file itself."""

from dataclasses import dataclass
from typing import Literal

TimeUnit = Literal["auto", "s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How to read a trace file where the file cannot say it.

    max_bad_frac: share (0..1) of unreadable rows above which the file is refused.
    timezone: IANA zone of time stamps without one; None reads them as UTC and says so.
    time_unit: unit of numeric time stamps; "auto" decides by format and magnitude.
    spread_quantised: spread stamps that lie on a coarse grid uniformly inside their bucket.
    seed: of everything drawn (spreading, ServeGen arrivals and lengths).
    window_start_s, window_duration_s: what to draw of a ServeGen folder, seconds since its day 0.
    prompt_tokens, output_tokens: what a request counts as whose length a server log does not tell;
        None refuses such a log.
    """

    max_bad_frac: float = 0.01
    timezone: str | None = None
    time_unit: TimeUnit = "auto"
    spread_quantised: bool = True
    seed: int = 0
    window_start_s: float | None = None
    window_duration_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
