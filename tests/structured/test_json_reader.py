"""Incremental JSON reading: values are reported once they are certain, and none is missed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.json_reader import JsonReader

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
    """Split a string at random places."""
    dice, split, at = random.Random(seed), [], 0
    while at < len(text):
        end = at + dice.randint(1, 6)
        split.append(text[at:end])
        at = end
    return split


def parts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return every value inside a value with its path, inner values first."""
    inside: Any = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    return [*(part for key, each in inside for part in parts(each, (*path, key))), (path, value)]


@given(VALUES, st.integers(0, 99), st.booleans(), st.sampled_from([None, 2]))
@example(-1.5, 0, True, None)
def test_every_value_is_reported_once_and_the_complete_value_last(
    value: Any, seed: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    reader = JsonReader()
    found = [
        (path, json.dumps(each))
        for piece in pieces(text, seed)
        for path, each, _ in reader.push(piece)
    ]
    found += [(path, json.dumps(each)) for path, each, _ in reader.finish()]
    assert found == [(path, json.dumps(each)) for path, each in parts(value)]
    assert reader.value == value


@pytest.mark.slow
@given(VALUES, VALUES, st.data())
def test_the_value_of_a_partial_text_agrees_with_the_complete_text(
    first: Any, second: Any, data: st.DataObject
) -> None:
    text = json.dumps({"a": [first, 1], "b": second})
    at = data.draw(st.integers(0, len(text)))
    reader = JsonReader()
    for _ in reader.push(text[:at]):
        pass

    def agrees(partial: Any, complete: Any) -> bool:
        if isinstance(partial, dict):
            return all(agrees(each, complete[key]) for key, each in partial.items())
        if isinstance(partial, list):
            return all(agrees(*pair) for pair in zip(partial, complete, strict=False))
        return bool(partial == complete)

    assert reader.value is None or agrees(reader.value, json.loads(text))


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('{"a":1,', {"a": 1}),
        ('{"a":true', {"a": True}),
        ('{"a":"x\\"', {}),
        ('{"a":"x\\""', {"a": 'x"'}),
        ('{"a"', {}),
        ('{"a":[{"b":2', {"a": [{}]}),
        ("[1,2", [1]),
        ("12", None),
    ],
)
def test_the_value_contains_all_complete_parts(text: str, certain: Any) -> None:
    reader = JsonReader()
    assert list(reader.push(text)) is not None
    assert reader.value == certain


@pytest.mark.parametrize("text", ["}", "x", "{1:2}", '{"a":1}}', "\x01"])
def test_invalid_json_is_rejected(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        list(JsonReader().push(text))
