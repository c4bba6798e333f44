"""Windows of the measured H200 table, drawn with replacement: real requests, no model.

The table is one burst of 14 s, so a window is a seventh of it, 2 s of about 36 requests, and there
are only seven to draw from. Each drawn window stands for 30 s of a study and is the same part of
the trace in every run. Windows drawn so carry no queue over, so the E2E tail asks for no merging.
A run is one measured point; points whose cap is never reached are repeats of each other, which
gives four runs of the defaults (A/A) and two of each challenger.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tasks.adapters.measured_table import load_measured_table
from tasks.domain.search.observation import RequestRows, breaks
from tests.benchmarks.calibration_study import Arms, Run

CUTS = 7
STANDS_FOR_S = 30.0
TTFT_LIMIT_S, TPOT_LIMIT_S = 1.0, 0.03
Knobs = tuple[int, int]
# (1024, 8192) was measured twice; caps of 256 and 128 were never reached at that budget.
DEFAULTS: tuple[Knobs, ...] = ((1024, 8192), (1024, 8192), (256, 8192), (128, 8192))
CHALLENGERS: tuple[tuple[Knobs, Knobs], ...] = (
    ((1024, 2048), (256, 2048)),
    ((1024, 512), (128, 512)),
    ((64, 8192), (64, 4096)),
    ((1024, 1024), (256, 1024)),
)


@dataclass(frozen=True, kw_only=True)
class ResampledTable:
    """Studies made of the windows of a measured table."""

    path: Path
    name: str = "table"
    least_window_s: float = STANDS_FOR_S
    about: str = (
        "windows of the measured H200 table (18 req/s, TTFT <= 1 s and TPOT <= 30 ms), 2 s each, "
        "drawn with replacement; each stands for 30 s"
    )

    @property
    def effects(self) -> tuple[str, ...]:
        return ("A/A", *(f"B = {one} and {two}" for one, two in CHALLENGERS))

    def study(self, rng: np.random.Generator, *, first_s: float, later_s: float) -> list[Arms]:
        windows = rng.integers(0, CUTS, round(first_s / STANDS_FOR_S))
        count = round(later_s / STANDS_FOR_S)
        mixed = rng.permutation(len(DEFAULTS)).tolist()
        default = [self._rows(DEFAULTS)[i] for i in mixed]

        def runs(first: RequestRows, second: RequestRows) -> tuple[Run, Run]:
            return _run(first, windows), _run(second, windows[:count])

        a = runs(default[0], default[1])
        arms = [Arms(a=a, b=runs(default[2], default[3]))]
        for challenger in CHALLENGERS:
            one, two = (self._rows(challenger)[i] for i in rng.permutation(2).tolist())
            arms.append(Arms(a=a, b=runs(one, two)))
        return arms

    def _rows(self, knobs: tuple[Knobs, ...]) -> list[RequestRows]:
        """Return the measured rows of each pair of values; a repeated pair gives its repeat."""
        return [self._measured[k][knobs[:i].count(k)] for i, k in enumerate(knobs)]

    @cached_property
    def _measured(self) -> dict[Knobs, list[RequestRows]]:
        found: dict[Knobs, list[RequestRows]] = {}
        for point in load_measured_table(self.path).points:
            key = (point.max_num_seqs, point.max_num_batched_tokens)
            found.setdefault(key, []).append(point.rows)
        return found


def _run(rows: RequestRows, windows: np.ndarray) -> Run:
    """Return the drawn windows in a row, their due times stretched to STANDS_FOR_S each."""
    late = breaks("ttft", rows.ttft_s, TTFT_LIMIT_S) | breaks("tpot", rows.tpot_s, TPOT_LIMIT_S)
    width = rows.duration_s / CUTS
    of = np.minimum(rows.load.due_s // width, CUTS - 1).astype(int)
    inside = np.clip(rows.load.due_s / width - of, 0, 0.999)
    due, good = [], []
    for i, window in enumerate(windows.tolist()):
        due.append((i + inside[of == window]) * STANDS_FOR_S)
        good.append(~late[of == window])
    return Run(due_s=np.concatenate(due), good=np.concatenate(good), e2e_s=None)
