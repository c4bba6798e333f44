"""What was done when: one line a step, so that a run's time can be accounted for afterwards."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasks.adapters.evidence_store import append_line
from tasks.domain.run_record import RunRecord
from tasks.domain.steps import Failed, Measure, Outcome, PrepareCheckpoint, Step

STEP_LOG = "steps.jsonl"


@dataclass(slots=True, kw_only=True)
class StepLog:
    """The file ``steps.jsonl`` of a run's folder; a run that goes on later appends to it."""

    folder: Path
    _began: float = field(default=0.0)

    def begin(self) -> None:
        """Note that a step begins now."""
        self._began = time.time()

    def end(self, step: Step, outcome: Outcome) -> None:
        """Write the step that ended: Unix time of its begin, seconds, seconds of load planned.

        Raises:
            StorageError: if it cannot be written.
        """
        row: dict[str, object] = {
            "step": type(step).__name__,
            "arm": step.arm,
            "key": step.key,
            "began_s": round(self._began, 3),
            "seconds": round(time.time() - self._began, 3),
            "failed": outcome.code if isinstance(outcome, Failed) else None,
        }
        if isinstance(step, Measure):
            live = None if step.live is None else step.live.as_dict()
            row |= {"load": step.point.name, "load_s": step.point.duration_s, "live": live}
        append_line(self.folder / STEP_LOG, json.dumps(row))


def with_times(runs: Sequence[RunRecord], folder: Path) -> tuple[RunRecord, ...]:
    """Return the runs with the times of their steps: a trial's from its arm's, others' from all.

    A run is recorded long after it was measured, on another machine perhaps. A run without a step
    in the folder's log keeps the times that it has; going on later, which looks for the checkpoint
    again and recalls the rest, makes no run longer.
    """
    steps = list(_steps(folder / STEP_LOG))
    return tuple(_timed(run, steps) for run in runs)


def _timed(run: RunRecord, steps: Sequence[dict[str, Any]]) -> RunRecord:
    own = [step for step in steps if run.parent_key is None or step["arm"] == run.name]
    if not own:
        return run
    done = [step for step in own if step["step"] != PrepareCheckpoint.__name__] or own
    began = min(step["began_s"] for step in own)
    ended = max(step["began_s"] + step["seconds"] for step in done)
    return replace(run, started_ms=round(1000 * began), ended_ms=round(1000 * ended))


def _steps(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the logged steps, without a line that a kill cut off."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            step = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(step, dict):
            yield step
