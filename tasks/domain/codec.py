"""Records to JSON values and back, strictly: what cannot come back equal is refused.

Knows frozen dataclasses, tuples, string-keyed mappings, enums, None and unions. A dataclass
carries the name of its class under "type", which is how a union of records is told apart.
Knows no file: callers write the text.
"""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tasks.domain.errors import PermanentError

TYPE_KEY = "type"

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
T = TypeVar("T")


class RecordFormatError(PermanentError):
    """A value cannot be stored as JSON, or a stored text is not the record that was asked for."""

    code = "RECORD_FORMAT"


def as_json(value: object) -> JsonValue:
    """Return a record as JSON values; each dataclass names its class under "type".

    Raises:
        RecordFormatError: for NaN, infinity, numpy scalars, lists and every other type that would
            not come back equal.
    """
    return _encode(value, type(value).__name__)


def from_json(kind: type[T], data: object) -> T:
    """Return the record of class ``kind`` that ``as_json`` made ``data`` from.

    A missing key takes the field's default, so that old files stay readable.

    Raises:
        RecordFormatError: for an unknown or missing key, a wrong type or another class.
    """
    return cast(T, _decode(kind, data, getattr(kind, "__name__", str(kind))))


def from_json_any(kinds: tuple[type[T], ...], data: object) -> T:
    """Return a record of whichever of ``kinds`` the data's "type" names.

    Raises:
        RecordFormatError: where it names none of them.
    """
    return cast(T, _decode_union(kinds, data, " | ".join(k.__name__ for k in kinds)))


def to_text(value: object, *, indent: int | None = None) -> str:
    """Return a record as JSON text; equal records give equal text.

    Raises:
        RecordFormatError: as ``as_json``.
    """
    return json.dumps(as_json(value), allow_nan=False, indent=indent)


def from_text(kind: type[T], text: str) -> T:
    """Return the record of class ``kind`` that ``to_text`` made ``text`` from.

    Raises:
        RecordFormatError: for text that is not JSON, NaN, a key given twice, or as ``from_json``.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise RecordFormatError(
            f"text of {kind.__name__} is not JSON ({error}); needed the text that to_text wrote"
        ) from error
    return from_json(kind, data)


def _refuse_constant(name: str) -> float:
    raise RecordFormatError(f"found {name} in JSON; needed a finite number or null")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise RecordFormatError(f"keys {twice} stand twice in one JSON object; needed each once")
    return found


def _encode(value: object, path: str) -> JsonValue:
    if isinstance(value, Enum):
        return _encode(value.value, path)
    if value is None or type(value) in (bool, int, str):
        return cast(JsonValue, value)
    if type(value) is float:
        if not math.isfinite(value):
            raise RecordFormatError(f"{path} is {value}; needed a finite number, or None")
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_record(value, path)
    if type(value) is tuple:
        return [_encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {key: _encode(item, f"{path}[{key!r}]") for key, item in value.items()}
    raise RecordFormatError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}; needed a dataclass, "
        "tuple, str-keyed mapping, enum, str, int, float, bool or None; convert it first"
    )


def _encode_record(value: object, path: str) -> dict[str, JsonValue]:
    names = [f.name for f in dataclasses.fields(value) if f.init]  # type: ignore[arg-type]
    if TYPE_KEY in names:
        raise RecordFormatError(
            f"{path} has a field called {TYPE_KEY!r}, the tag's name; rename it"
        )
    encoded: dict[str, JsonValue] = {TYPE_KEY: type(value).__name__}
    for name in names:
        encoded[name] = _encode(getattr(value, name), f"{path}.{name}")
    return encoded


@cache
def _hints(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


def _wrong(path: str, data: object, needed: str) -> RecordFormatError:
    return RecordFormatError(f"{path} is {data!r:.80} ({type(data).__name__}); needed {needed}")


def _decode(kind: object, data: object, path: str) -> object:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), data, path)
    if origin is Literal:
        if any(data == option and type(data) is type(option) for option in get_args(kind)):
            return data
        raise _wrong(path, data, f"one of {get_args(kind)}")
    if origin is tuple:
        return _decode_tuple(get_args(kind), data, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise _wrong(path, data, "an object")
        return {k: _decode(get_args(kind)[1], v, f"{path}[{k!r}]") for k, v in data.items()}
    if isinstance(kind, type):
        return _decode_class(kind, data, path)
    raise RecordFormatError(f"{path} is declared as {kind!r}, which this codec cannot read")


def _decode_class(kind: type, data: object, path: str) -> object:
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, data, path)
    if issubclass(kind, Enum):
        for member in kind:
            if member.value == data and type(member.value) is type(data):
                return member
        raise _wrong(path, data, f"one of {[member.value for member in kind]}")
    if kind is float and type(data) in (int, float):
        try:
            number = float(cast(float, data))
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise _wrong(path, data, "a finite number")
    if kind in (bool, int, str, types.NoneType) and type(data) is kind:
        return data
    raise _wrong(path, data, kind.__name__)


def _decode_record(kind: type, data: object, path: str) -> object:
    if not isinstance(data, dict):
        raise _wrong(path, data, f"an object of type {kind.__name__}")
    if data.get(TYPE_KEY) != kind.__name__:
        raise _wrong(f"{path}.{TYPE_KEY}", data.get(TYPE_KEY), repr(kind.__name__))
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    unknown = sorted(set(data) - set(fields) - {TYPE_KEY})
    if unknown:
        raise RecordFormatError(
            f"{path} has keys {unknown} that {kind.__name__} does not know; needed only "
            f"{sorted(fields)}; the file was written by another version"
        )
    hints = _hints(kind)
    values = {n: _decode(hints[n], data[n], f"{path}.{n}") for n in fields if n in data}
    missing = [name for name, f in fields.items() if name not in values and _required(f)]
    if missing:
        raise RecordFormatError(f"{path} lacks keys {missing}, which {kind.__name__} needs")
    return kind(**values)


def _required(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _decode_tuple(args: tuple[object, ...], data: object, path: str) -> tuple[object, ...]:
    if not isinstance(data, list):
        raise _wrong(path, data, "a list")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], item, f"{path}[{i}]") for i, item in enumerate(data))
    if len(args) != len(data):
        raise _wrong(path, data, f"a list of {len(args)} items")
    pairs = zip(args, data, strict=True)
    return tuple(_decode(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(pairs))


def _decode_union(options: tuple[object, ...], data: object, path: str) -> object:
    records = [o for o in options if isinstance(o, type) and dataclasses.is_dataclass(o)]
    if records and isinstance(data, dict) and TYPE_KEY in data:
        named = [o for o in records if o.__name__ == data[TYPE_KEY]]
        if len(named) == 1:
            return _decode_record(named[0], data, path)
        raise _wrong(f"{path}.{TYPE_KEY}", data[TYPE_KEY], str([o.__name__ for o in records]))
    # The exact JSON type first, so that 1 stays an int where float would take it too.
    for option in sorted(options, key=lambda o: type(data) is not o):
        try:
            return _decode(option, data, path)
        except RecordFormatError:
            continue
    raise _wrong(path, data, " or ".join(getattr(o, "__name__", str(o)) for o in options))
