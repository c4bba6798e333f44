"""Why an engine ended: a table of failure classes over the root cause of its log.

A class is a row of ``engine_failure_classes``; this file only picks the row and words the result.
"""

import signal
from dataclasses import dataclass

from tasks.domain.engine_failure_classes import CLASSES, FailureClass
from tasks.domain.engine_log import log_lines
from tasks.domain.engine_log_causes import causes, last_resort


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailure:
    """The end of an engine, classified.

    infeasible: the values, the checkpoint or the environment forbid this engine, so the same
    trial fails again. retry: one more try may pass. root_cause: the first real cause in the log,
    without prefixes. details: what the cause names, as text, for example
    ``("estimated_max_model_len", "14336")``.
    """

    code: str
    infeasible: bool
    retry: bool
    root_cause: str
    details: tuple[tuple[str, str], ...] = ()
    advice: str = ""

    @property
    def message(self) -> str:
        """What was seen and what to do, as one sentence."""
        return f"{self.root_cause.rstrip('.')}; {self.advice}" if self.advice else self.root_cause

    def detail(self, name: str) -> str | None:
        """Return a detail by name, or None where the cause did not say it."""
        return dict(self.details).get(name)


def failure_from_log(text: str, *, exit_code: int | None) -> EngineFailure:
    """Return the failure that a log and an exit code tell.

    The first candidate that a class knows decides; without one the first candidate is quoted as
    ENGINE_DIED, which may be tried again. exit_code is None where the process still lives or
    nobody saw it end; a negative one is the signal that ended it.
    """
    candidates = causes(text)
    for cause in candidates:
        for row in CLASSES:
            match = row.pattern.search(cause.text)
            if match is not None:
                details = {k: v for k, v in match.groupdict().items() if v is not None}
                return _classified(row, cause.text, details, served=_served(text))
    died = _death(exit_code)
    quoted = candidates[0].text if candidates else last_resort(text)
    return EngineFailure(
        code="ENGINE_DIED",
        infeasible=False,
        retry=True,
        root_cause=died if quoted is None else f"{quoted} ({died})",
        details=(("exit_code", str(exit_code)),) if exit_code is not None else (),
        advice=_death_advice(exit_code),
    )


def _classified(
    row: FailureClass, cause: str, details: dict[str, str], *, served: bool
) -> EngineFailure:
    for name, source in row.derived:
        if source in details:
            details.setdefault(name, details[source])
    for name in ("argument", "dtype", "supported"):
        if name in details:
            details[name] = _plain(details[name], argument=name == "argument")
    if row.code in ("CUDA_OOM", "HOST_OUT_OF_MEMORY"):
        details["when"] = "load" if served else "start"
    estimate = details.get("estimated_max_model_len")
    advice = row.advice if estimate is None else row.advice_with_estimate or row.advice
    return EngineFailure(
        code=row.code,
        infeasible=row.infeasible,
        retry=row.retry,
        root_cause=cause,
        details=tuple(sorted(details.items())),
        advice=advice.replace("{estimate}", estimate or ""),
    )


def _plain(value: str, *, argument: bool) -> str:
    """Return ``--swap-space`` as swap_space, and ``torch.float16`` as float16."""
    if argument:
        return value.lstrip("-").replace("-", "_")
    return value.replace("torch.", "")


def _served(text: str) -> bool:
    """Tell whether the engine had reached the state in which it takes requests."""
    return any("Application startup complete" in line.text for line in log_lines(text))


def _death(exit_code: int | None) -> str:
    if exit_code is None:
        return "the engine's log names no cause"
    if exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = "unknown signal"
        return f"the engine's process was ended by signal {-exit_code} ({name})"
    return f"the engine's process ended with exit_code={exit_code}"


def _death_advice(exit_code: int | None) -> str:
    if exit_code == -signal.SIGKILL:
        return "look for the kernel's out-of-memory killer or for whoever sent the signal"
    return "read the engine's log"
