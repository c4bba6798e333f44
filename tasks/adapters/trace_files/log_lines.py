"""One line of a server's log: which request it tells of, when, and how many tokens.

Knows vLLM's request log (read in 0.32.0, entrypoints/serve/utils/request_logger.py, and the
one-line form of 0.10 and before), uvicorn's access log and the common log format, as text or as
JSON lines. Counts tokens and hashes blocks; keeps no prompt text.
"""

import json
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["received", "prompt", "output", "failed", "foreign", "access"]

GENERATING = re.compile(
    r"^(/\S*)?/(v1/(chat/)?completions|v1/responses|v1/messages|inference/v1/generate|generate)$"
)
# In front of these words stand a time stamp, a level and a place in the source.
_RECEIVED = re.compile(r"Received request (\S+?): ")
_DETAILS = re.compile(r"Request (\S+) details: prompt: ")
_OUTPUT = re.compile(
    r"Generated response (\S+)( \(streaming delta\))?(?: \(streaming complete\))?"
    r" details: output_token_ids: \[([\d, ]*)\]"
)
_FAILED = re.compile(r"Request (\S+) (?:aborted|failed)\b")
_ACCESS = re.compile(r'"([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3})\b')
_LIMITS = re.compile(r"ignore_eos=(True|False), max_tokens=(\d+|None)")
_PROMPT_IDS = "prompt_token_ids: ["
_MAX_LOG_LEN = re.compile(r"'max_log_len': (\d+)")
_TERMINAL_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """What one line says; None where it does not say it.

    prompt_ids: the ids' text between the brackets. output_tokens: of this answer or delta.
    max_tokens with ignore_eos: the answer's exact length, else only its upper limit.
    foreign: an embedding, a score or a tokenization, which generates nothing.
    ok: False for an access line whose status is not 200.
    """

    kind: Kind
    request: str = ""
    prompt_ids: str | None = None
    output_tokens: int | None = None
    is_delta: bool = False
    max_tokens: int | None = None
    ignore_eos: bool = False
    ok: bool = True


def plain_line(line: str) -> tuple[str, str | None]:
    """Return a line's message and its own time stamp where it is JSON, else the line and None."""
    if "\x1b" in line:
        line = _TERMINAL_COLOUR.sub("", line)
    if not line.startswith("{"):
        return line, None
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return line, None
    if not isinstance(record, dict) or not isinstance(record.get("message"), str):
        return line, None
    stamp = record.get("asctime", record.get("timestamp"))
    return record["message"], stamp if isinstance(stamp, str) else ""


def log_event(message: str) -> LogEvent | None:
    """Return what a line says of a request of the traffic, None for every other line."""
    if " HTTP/" in message and (access := _ACCESS.search(message)) is not None:
        method, path, status = access.groups()
        if method != "POST" or not GENERATING.match(path.partition("?")[0]):
            return None
        return LogEvent(kind="access", ok=status == "200")
    if "equest " in message or "Generated response " in message:
        return _request_event(message)
    return None


def logged_limit(message: str) -> int | None:
    """Return --max-log-len from the line that lists the server's arguments, None elsewhere."""
    found = _MAX_LOG_LEN.search(message) if "max_log_len" in message else None
    return None if found is None else int(found[1])


def is_log_line(line: str) -> bool:
    """Tell whether a line can only come from such a log."""
    message, stamp = plain_line(line)
    if stamp is not None:
        return True
    return bool(_PREFIX.search(message[:160])) or _ACCESS.search(message) is not None


_PREFIX = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d\S* \[?[\w./]+:\d+\]")


def _request_event(message: str) -> LogEvent | None:
    if (found := _RECEIVED.search(message)) is not None:
        return _received(found[1], message)
    if (found := _DETAILS.search(message)) is not None:
        return LogEvent(kind="prompt", request=found[1], prompt_ids=_prompt_ids(message))
    if (found := _OUTPUT.search(message)) is not None:
        count = found[3].count(",") + 1 if found[3].strip() else 0
        return LogEvent(
            kind="output", request=found[1], output_tokens=count, is_delta=found[2] is not None
        )
    if (found := _FAILED.search(message)) is not None:
        return LogEvent(kind="failed", request=found[1])
    return None


def _received(request: str, message: str) -> LogEvent:
    if "SamplingParams(" not in message and "BeamSearchParams(" not in message:
        return LogEvent(kind="foreign", request=request)
    # A prompt stands before the parameters and may quote them, hence the last match.
    limits = _LIMITS.findall(message)
    ignore_eos, max_tokens = limits[-1] if limits else ("False", "None")
    return LogEvent(
        kind="received",
        request=request,
        prompt_ids=_prompt_ids(message),
        max_tokens=None if max_tokens == "None" else int(max_tokens),
        ignore_eos=ignore_eos == "True",
    )


def _prompt_ids(message: str) -> str | None:
    start = message.rfind(_PROMPT_IDS)
    if start < 0:
        return None
    start += len(_PROMPT_IDS)
    end = message.find("]", start)
    return None if end < 0 else message[start:end]
