"""Which lines of a log may name the root cause of an engine's end, best first.

vLLM prints the real exception in the process where it was raised, wraps it on its way up, and
ends with a sentence that only points back. The wrappers are known here and are never a cause.
"""

import re
from dataclasses import dataclass

from tasks.domain.engine_log import LogLine, log_lines

_EXCEPTION = re.compile(
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)"
    r"|(?:[A-Za-z_]\w*\.)+(?:error|timeout|gaierror))(?:: .*|:?$)"  # struct.error and its kind
)
_VALIDATION = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for ")
_PYDANTIC = re.compile(r"\s*(?:Value|Assertion) error, |\s+Input should be |\s+Extra inputs are ")
_PYDANTIC_TAIL = re.compile(r"\s*\[type=\w+, input_value=.*$|\s*\[type=.*$")
_ARGPARSE = re.compile(r"(?:usage: )?[\w ./-]*: error: ")
_NATIVE = re.compile(
    r"Fatal Python error: |.*Segfault encountered|Segmentation fault|Killed$|terminate called after"
    r"|\[Errno \d+\] "
)
_WRAPPERS = re.compile(
    r"Engine core initialization failed"
    r"|EngineDeadError|EngineCore encountered an issue"
    r"|Worker failed with error"
    r"|WorkerProc initialization failed"
    r"|Engine process failed to start|Engine loop has died|MQEngineDeadError"
    r"|[Ss]ee (?:the )?(?:root cause|stack trace)"
    r"|asyncio\.exceptions\.CancelledError|KeyboardInterrupt|SystemExit"
    r"|LocalProtocolError|ClientDisconnect"
)
_LAST_RESORT = re.compile(
    r"(?:Engine core proc|Worker proc) \S+ died unexpectedly.*|Worker failed with error .*"
)
_ENGINE_PROCESS = re.compile(r"EngineCore|Worker|VllmWorker|Ray|EngineDriver", re.IGNORECASE)
_POINTER = re.compile(r",? ?(?:please )?(?:check|see) the stack trace.*$", re.IGNORECASE)

MAX_QUOTE = 600
"""Characters of a cause that are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A candidate for the root cause: its sentence without prefixes, and who printed it."""

    text: str
    process: str | None = None


def causes(log: str) -> tuple[Cause, ...]:
    """Return the candidates: those of engine and worker processes first, each in log order."""
    lines = tuple(log_lines(log))
    found: dict[str, Cause] = {}
    for line in lines:
        text = _candidate(line)
        if text is not None and text not in found:
            found[text] = Cause(text=text, process=line.process)
    inner = [cause for cause in found.values() if _from_engine(cause)]
    outer = [cause for cause in found.values() if not _from_engine(cause)]
    return (*inner, *outer)


def last_resort(log: str) -> str | None:
    """Return the sentence that says least wrong when no candidate is there, or None."""
    for line in log_lines(log):
        match = _LAST_RESORT.search(line.text)
        if match is not None:
            return _quote(_POINTER.sub("", match[0]))
    return None


def _from_engine(cause: Cause) -> bool:
    return cause.process is not None and _ENGINE_PROCESS.match(cause.process) is not None


def _candidate(line: LogLine) -> str | None:
    text = line.text
    if line.level in ("DEBUG", "INFO", "WARNING") or _WRAPPERS.search(text):
        return None
    if _VALIDATION.match(text):
        return None
    if _PYDANTIC.match(text):
        return _quote(re.sub(r"^\s*(?:Value|Assertion) error, ", "", text))
    if _EXCEPTION.match(text) or _NATIVE.match(text):
        return _quote(text)
    argparse = _ARGPARSE.match(text)
    if argparse is not None:
        return _quote(text[argparse.end() :])
    return None


def _quote(text: str) -> str:
    clean = _PYDANTIC_TAIL.sub("", text).strip()
    return clean if len(clean) <= MAX_QUOTE else clean[: MAX_QUOTE - 1] + "…"
