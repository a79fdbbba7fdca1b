"""Writing and reading JSON, and the state at the end of a partial text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.json_text import (
    JsonScanner,
    json_text,
    read_json,
    string_body,
    string_from_body,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values)
def test_every_json_value_survives_writing_and_reading(value: Any) -> None:
    try:
        text = json_text(value)
    except InvalidArgumentError:
        assert "Infinity" in json.dumps(value)
    else:
        assert read_json(text) == value


@given(st.text())
def test_a_string_survives_writing_and_reading_without_quotes(text: str) -> None:
    body = string_body(text)
    assert string_from_body(body) == text
    inside = JsonScanner(in_string=True)
    inside.push(body)
    assert inside == JsonScanner(in_string=True, is_plain=True)


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "NaN", "[Infinity]", '"\n"', "1 2", '"a' + "[" * 9]
)
def test_invalid_json_is_rejected(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        read_json(text)


def test_nesting_too_deep_for_python_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        read_json("[" * 200_000)


def test_an_integer_too_long_for_python_is_read_as_a_float() -> None:
    assert read_json("1" * 5000) == math.inf
    assert read_json("1" * 400) == int("1" * 400)


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udfff x"]}])
def test_the_error_for_a_lone_surrogate_shows_it(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"lone surrogate, U\+D"):
        json_text(value)


def test_a_value_that_contains_itself_is_rejected() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidArgumentError, match="not a JSON value"):
        json_text(value)


@pytest.mark.parametrize(
    ("text", "in_string", "escape"),
    [
        ("", False, ""),
        ('{"a":', False, ""),
        ('{"a":"', True, ""),
        ('"a\\"', True, ""),
        ('"a\\\\"', False, ""),
        ('"a\\', True, "\\"),
        ('"\\u00', True, "\\u00"),
        ('"\\u00e4', True, ""),
        ("\\", False, ""),
    ],
)
def test_a_scanner_tracks_strings_and_escapes(text: str, in_string: bool, escape: str) -> None:
    scanner = JsonScanner()
    for char in text:
        scanner.push(char)
    assert (scanner.in_string, scanner.escape) == (in_string, escape)
    assert scanner.depth == text.count("{")
