"""The verb that compares traffic: yesterday's reference against fresh requests."""

from tasks.domain.drift import DriftReport, drift_report
from tasks.domain.trace import Trace


def compare_traffic(reference: Trace, fresh: Trace, *, seed: int) -> DriftReport:
    """Return what changed between the reference and fresh traffic, with intervals."""
    return drift_report(reference, fresh, seed=seed)
