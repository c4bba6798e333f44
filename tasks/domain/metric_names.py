"""Names that a tracking store accepts, made from any name without merging two into one.

Knows the character set ``[a-z0-9_/.]`` and nothing of a store's interface. Of that set MLflow
3.17 (sqlite, Postgres and MySQL alike) refuses only empty, ``.`` and ``..`` path segments.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from tasks.domain.errors import MeasurementInvalidError, PermanentError

MAX_NAME_CHARACTERS = 250  # MLflow's MAX_ENTITY_KEY_LENGTH
_SPELLED_OUT = (("@", " at "), ("%", " pct "), (":", "/"))
_REFUSED = re.compile(r"_*[^a-z0-9_.]+_*")
_ENDS = re.compile(r"^[^a-z0-9_.]+|[^a-z0-9_.]+$")
_HASH_STEP = 8


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return a safe name for every given name; equal results never stand for two names.

    A name of ``[a-z0-9_/.]`` that collides with no other keeps itself. ``@`` becomes ``at``,
    ``%`` becomes ``pct``, ``:`` becomes ``/``, other characters become ``_``. Where two names
    would meet, ALL of them get the first 8 (if need be 16, 24, ...) hex digits of their own
    SHA-256, so the result depends on the set of names and not on their order.

    Raises:
        PermanentError: METRIC_NAME_EMPTY if a name has no character.
    """
    wanted = sorted(set(names))
    if "" in wanted:
        raise PermanentError(
            "a metric or parameter has the name ''; one character at least is needed; "
            "name it where it is computed",
            code="METRIC_NAME_EMPTY",
        )
    digits = {name: 0 if len(_spelled(name)) <= MAX_NAME_CHARACTERS else 8 for name in wanted}
    while True:
        safe = {name: _with_hash(name, digits[name]) for name in wanted}
        uses = Counter(safe.values())
        colliding = [name for name in wanted if uses[safe[name]] > 1]
        if not colliding:
            return safe
        for name in colliding:
            digits[name] += _HASH_STEP


def require_finite(name: str, value: float, *, run: str) -> float:
    """Return the value if it is a finite number.

    MLflow stores +inf as 1.8e308, which then wins every maximum, and NaN as 0.

    Raises:
        MeasurementInvalidError: METRIC_NOT_FINITE for NaN and both infinities.
    """
    if math.isfinite(value):
        return value
    raise MeasurementInvalidError(
        f"metric {name!r} of run {run!r} is {value}; a finite number is needed; "
        "leave out what was not measured",
        code="METRIC_NOT_FINITE",
    )


def _spelled(name: str) -> str:
    """Spell a name with ``[a-z0-9_/.]`` only; two names may meet here."""
    text = unicodedata.normalize("NFKD", name).lower().replace("\u03bc", "u")  # micro sign
    text = "".join(mark for mark in text if not unicodedata.combining(mark))
    for character, words in _SPELLED_OUT:
        text = text.replace(character, words)
    segments = (_REFUSED.sub("_", _ENDS.sub("", part)) for part in text.split("/"))
    return "/".join(part for part in segments if part.strip(".")) or "unnamed"


def _with_hash(name: str, digits: int) -> str:
    """Append ``digits`` hex digits of the name's SHA-256 and keep within the length limit."""
    spelled = _spelled(name)
    if digits == 0:
        return spelled
    suffix = "_" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return spelled[: MAX_NAME_CHARACTERS - len(suffix)].rstrip("/") + suffix
