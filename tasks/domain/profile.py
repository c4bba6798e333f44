"""The profile of one load: what engine, devices and kernels showed. No client-side latency."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.device_samples import DeviceSummary
from tasks.domain.engine_metrics import MetricsSnapshot, Note, stale_metrics
from tasks.domain.engine_window import EngineWindow, engine_window
from tasks.domain.kernel_table import KernelTable, MissingTable

_MISSING_CODES = ("MISSING_METRIC", "NO_SNAPSHOTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Observations of one load point.

    window: None where the engine exposes no /metrics. kernels come from a window of their own
    after the measured one, since the profiler slows the engine; kernels_missing says why there
    are none. missing and warnings are (code, sentence).
    """

    window: EngineWindow | None = None
    device: DeviceSummary | None = None
    kernels: KernelTable | None = None
    kernels_missing: MissingTable | None = None
    missing: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()


def profile_of(
    snapshots: Sequence[MetricsSnapshot],
    *,
    device: DeviceSummary | None,
    kernels: KernelTable | MissingTable | None,
    notes: Sequence[Note] = (),
    requests_before: int | None = None,
) -> Profile:
    """Put one load point's observations together.

    requests_before: how many requests of ours the engine had served before; with 0, counters
    that are not 0 give the warning STALE_METRICS. None does not look.
    """
    window = engine_window(snapshots)
    stale = None
    if requests_before is not None and snapshots:
        stale = stale_metrics(snapshots[0], requests_sent=requests_before)
    return Profile(
        window=window if window.snapshots else None,
        device=device,
        kernels=kernels if isinstance(kernels, KernelTable) else None,
        kernels_missing=kernels if isinstance(kernels, MissingTable) else None,
        missing=tuple(note for note in window.notes if note[0] in _MISSING_CODES),
        warnings=(
            *(note for note in window.notes if note[0] not in _MISSING_CODES),
            *(() if stale is None else (stale,)),
            *notes,
        ),
    )
