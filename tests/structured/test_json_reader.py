"""JSON read while it comes: nothing is said before it is certain, and all of it in the end."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured import JsonReader

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def pieces(text: str, seed: int) -> list[str]:
    """Cut a text at random places."""
    dice, cut, at = random.Random(seed), [], 0
    while at < len(text):
        end = at + dice.randint(1, 6)
        cut.append(text[at:end])
        at = end
    return cut


def parts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return every value inside a value with its place, those inside others first."""
    inside: Any = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    return [*(part for key, each in inside for part in parts(each, (*path, key))), (path, value)]


@given(VALUES, st.integers(0, 99), st.booleans(), st.sampled_from([None, 2]))
def test_every_value_is_told_once_and_the_whole_in_the_end(
    value: Any, seed: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    reader = JsonReader()
    found = [
        (path, json.dumps(each))
        for piece in pieces(text, seed)
        for path, each in reader.push(piece)
    ]
    found += [(path, json.dumps(each)) for path, each in reader.finish()]
    assert found == [(path, json.dumps(each)) for path, each in parts(value)]
    assert reader.value == value
    assert not reader.is_open


@pytest.mark.slow
@given(VALUES, VALUES, st.data())
def test_what_is_told_of_a_beginning_is_true_of_every_text_that_begins_so(
    first: Any, second: Any, data: st.DataObject
) -> None:
    """Both texts begin alike; what is said after that beginning holds for both."""
    one = json.dumps({"a": [first, 1], "b": second})
    at = data.draw(st.integers(0, len(one)))
    reader = JsonReader()
    for _ in reader.push(one[:at]):
        pass

    def agrees(certain: Any, whole: Any) -> bool:
        if isinstance(certain, dict):
            return all(agrees(each, whole[key]) for key, each in certain.items())
        if isinstance(certain, list):
            return all(agrees(*pair) for pair in zip(certain, whole, strict=False))
        return bool(certain == whole)

    assert not reader.has_value or agrees(reader.value, json.loads(one))


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('{"a":1', {}),
        ('{"a":1,', {"a": 1}),
        ('{"a":1.', {}),
        ('{"a":tru', {}),
        ('{"a":true', {"a": True}),
        ('{"a":"x', {}),
        ('{"a":"x\\', {}),
        ('{"a":"x\\"', {}),
        ('{"a":"x\\""', {"a": 'x"'}),
        ('{"a"', {}),
        ('{"a":[{"b":2', {"a": [{}]}),
        ("[1,2", [1]),
        ("-", None),
        ("12", None),
    ],
)
def test_only_what_is_certain_is_told(text: str, certain: Any) -> None:
    reader = JsonReader()
    assert list(reader.push(text)) is not None
    assert reader.value == certain


def test_where_it_is_open_is_told() -> None:
    reader = JsonReader()
    list(reader.push('{"a":[1,{"b":'))
    assert reader.is_open
    assert reader.open_path == ("a", 1)
    list(reader.push("2}]"))
    assert reader.open_path == ()


@pytest.mark.parametrize("text", ["}", "x", "{1:2}", '{"a":1}}', "\x01"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        list(JsonReader().push(text))
