"""What was done when: one line a step, so that a run's time can be accounted for afterwards."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tasks.adapters.evidence_store import append_line
from tasks.domain.steps import Failed, Measure, Outcome, Step

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
