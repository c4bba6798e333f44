"""Service-level objective: the limits that one request must keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits in seconds for one request and the share of requests that must keep them.

    A limit of None does not apply. ``attainment_frac`` (0..1) is the share of all requests,
    failed ones included, that must keep every limit.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    attainment_frac: float = 0.99

    def violations(
        self, *, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None
    ) -> tuple[str, ...]:
        """Return the names of the limits that these latencies break.

        TPOT is None for a request of one token, which cannot break that limit; a missing TTFT
        or E2E (a failed request) breaks its limit.
        """
        broken: list[str] = []
        for name, limit, value in (("ttft", self.ttft_s, ttft_s), ("e2e", self.e2e_s, e2e_s)):
            if limit is not None and (value is None or value > limit):
                broken.append(name)
        if self.tpot_s is not None and tpot_s is not None and tpot_s > self.tpot_s:
            broken.append("tpot")
        return tuple(broken)
