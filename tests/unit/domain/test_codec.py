"""The codec gives equal records back and refuses what it could not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.codec import (
    RecordFormatError,
    as_json,
    from_json,
    from_json_any,
    from_text,
    to_text,
)
from tasks.domain.load_point import LoadKind, LoadPoint
from tasks.domain.parameters import ParameterValues
from tasks.domain.request_record import RequestRecord


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    radius: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    side: float
    colour: Colour | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    shapes: tuple[Circle | Square, ...]
    size: tuple[int, float]
    labels: Mapping[str, bool | int | float | str]
    mode: Literal["a", "b"] = "a"
    inner: "Drawing | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    type: str  # the codec's own key


finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.booleans() | st.integers() | finite | st.text(max_size=5)
shapes = st.builds(Circle, radius=finite) | st.builds(
    Square, side=finite, colour=st.none() | st.sampled_from(Colour)
)
drawings = st.recursive(
    st.builds(
        Drawing,
        shapes=st.lists(shapes, max_size=3).map(tuple),
        size=st.tuples(st.integers(), finite),
        labels=st.dictionaries(st.text(max_size=3), scalars, max_size=3),
        mode=st.sampled_from(["a", "b"]),
    ),
    lambda inner: st.builds(
        Drawing, shapes=st.just(()), size=st.just((1, 2.0)), labels=st.just({}), inner=inner
    ),
    max_leaves=4,
)


@given(drawings)
def test_every_drawing_comes_back_equal_through_text(drawing: Drawing) -> None:
    assert from_text(Drawing, to_text(drawing)) == drawing


@given(scalars)
def test_a_parameter_value_comes_back_with_its_own_type(value: bool | int | float | str) -> None:
    values = ParameterValues.of({"name": value})
    back = from_text(ParameterValues, to_text(values)).get("name")
    assert back == value
    assert type(back) is type(value)


def test_project_records_come_back_equal() -> None:
    point = LoadPoint(kind=LoadKind.OPEN, duration_s=30.0, rate_scale=1.5)
    record = RequestRecord(
        index=3, due_s=0.5, asked_prompt_tokens=10, asked_output_tokens=2, stamps=((0.7, 2),)
    )
    assert from_json(LoadPoint, as_json(point)) == point
    assert from_json(RequestRecord, as_json(record)) == record
    assert isinstance(from_json(LoadPoint, as_json(point)).kind, LoadKind)


def test_a_union_at_the_root_is_told_apart_by_its_tag() -> None:
    assert from_json_any((Circle, Square), as_json(Square(side=2.0))) == Square(side=2.0)
    with pytest.raises(RecordFormatError, match="'Circle'"):
        from_json_any((Square,), as_json(Circle(radius=1.0)))


def test_an_integer_in_a_float_field_is_read_as_a_float() -> None:
    back = from_json(Circle, {"type": "Circle", "radius": 2})
    assert back == Circle(radius=2.0)
    assert type(back.radius) is float


@pytest.mark.parametrize(
    "bad",
    [float("nan"), float("inf"), np.float64(1.0), np.int64(1), [1.0], {1.0}, b"x", np.ones(2)],
)
def test_a_value_that_would_not_come_back_is_refused_with_its_path(bad: object) -> None:
    with pytest.raises(RecordFormatError, match=r"Circle\.radius"):
        as_json(Circle(radius=bad))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"type": "Circle", "radius": 1.0, "colour": "red"}, "colour"),
        ({"type": "Circle"}, "lacks keys .'radius'"),
        ({"type": "Square", "radius": 1.0}, "needed 'Circle'"),
        ({"radius": 1.0}, "needed 'Circle'"),
        ({"type": "Circle", "radius": "1"}, "needed float"),
        ({"type": "Circle", "radius": True}, "needed float"),
        ({"type": "Circle", "radius": None}, "needed float"),
        ([], "needed an object"),
    ],
)
def test_data_of_another_shape_is_refused(data: object, said: str) -> None:
    with pytest.raises(RecordFormatError, match=said):
        from_json(Circle, data)


def test_a_missing_key_takes_the_default_so_that_old_files_stay_readable() -> None:
    assert from_json(Square, {"type": "Square", "side": 1.0}) == Square(side=1.0, colour=None)


def test_an_unknown_enum_value_and_a_wrong_literal_are_refused() -> None:
    with pytest.raises(RecordFormatError, match="green"):
        from_json(Square, {"type": "Square", "side": 1.0, "colour": "green"})
    drawing = as_json(Drawing(shapes=(), size=(1, 1.0), labels={}))
    assert isinstance(drawing, dict)
    with pytest.raises(RecordFormatError, match="mode"):
        from_json(Drawing, {**drawing, "mode": "c"})
    with pytest.raises(RecordFormatError, match="2 items"):
        from_json(Drawing, {**drawing, "size": [1]})


@pytest.mark.parametrize(
    "text", ['{"type":"Circle","radius":NaN}', '{"type":"Circle","radius":1,"radius":2}', "{", ""]
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(RecordFormatError):
        from_text(Circle, text)


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400])
def test_a_number_too_large_for_a_float_is_refused(number: str) -> None:
    with pytest.raises(RecordFormatError, match="finite"):
        from_text(Circle, f'{{"type":"Circle","radius":{number}}}')


def test_a_field_that_hides_the_tag_is_refused() -> None:
    with pytest.raises(RecordFormatError, match="tag"):
        as_json(Tagged(type="x"))


def test_text_is_plain_json_that_other_tools_read() -> None:
    assert json.loads(to_text(Square(side=1.0, colour=Colour.RED))) == {
        "type": "Square",
        "side": 1.0,
        "colour": "red",
    }
