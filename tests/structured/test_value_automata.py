"""Automata of JSON values and the strings after them, compared with regular expressions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from automata_walks import Dfa, shortest_completion, trimmed
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.json_text import read_json
from eliza_ffi.structured.placed_span import _PATTERNS
from eliza_ffi.structured.value_automata import followed_value

FOLLOWS = {
    "integer": ("}", ',"a":', ',"ab":1'),
    "number": (",", ", ", "}é"),
    "string": (',"a":', "}"),
    "string-body": ('","a":', '"}'),
}
NUMBERS = st.sampled_from(["-", "0", "1", "9", ".", "e", "E", "+"])
STRINGS = st.sampled_from(
    [*'"\\/ubdD8cC0f{}\x1f \x7fé\u0800日\ud7ff\ue000😀\U0010ffff', "ud83d\\ude00", "\\u00e9"]
)


@pytest.mark.parametrize("kind", FOLLOWS)
@given(data=st.data())
def test_an_automaton_accepts_a_value_and_one_of_the_strings_after_it(
    kind: str, data: st.DataObject
) -> None:
    parts = NUMBERS if kind in ("integer", "number") else STRINGS
    value = "".join(data.draw(st.lists(parts, max_size=8)))
    if kind == "string" and data.draw(st.booleans()):
        value = f'"{value}"'
    follow = data.draw(st.sampled_from(FOLLOWS[kind]))
    is_value = _PATTERNS[kind].fullmatch(value) is not None
    assert Dfa.of(followed_value(kind)).accepts(value.encode()) == is_value
    dfa = Dfa.of(followed_value(kind, FOLLOWS[kind]))
    whole = f"(?:{_PATTERNS[kind].pattern})(?:{'|'.join(map(re.escape, FOLLOWS[kind]))})"
    for text in (value, value + follow, value + follow[:-1]):
        assert dfa.accepts(text.encode()) == (re.fullmatch(whole, text) is not None)


@given(st.lists(STRINGS | NUMBERS, max_size=8).map("".join) | st.text(max_size=6))
def test_the_patterns_match_what_json_reads(text: str) -> None:
    for kind, whole in (("string", f'"{text}"'), ("number", text)):
        try:
            value = read_json(whole)
            str(value).encode()  # no lone surrogates
            is_json = isinstance(value, str if kind == "string" else (int, float))
        except (InvalidArgumentError, UnicodeEncodeError):
            is_json = False
        is_json = is_json and whole == whole.strip() and not isinstance(value, bool)
        assert (_PATTERNS[kind].fullmatch(whole) is not None) == is_json


@pytest.mark.parametrize("kind", FOLLOWS)
@pytest.mark.parametrize("has_follow", [False, True])
def test_every_state_leads_to_an_end(kind: str, has_follow: bool) -> None:
    dfa = Dfa.of(followed_value(kind, FOLLOWS[kind] if has_follow else ()))
    result = trimmed(dfa)
    assert result is not None
    assert np.array_equal(result.transitions, dfa.transitions)
    assert all(shortest_completion(dfa, i) is not None for i in range(len(dfa.accepting)))


def test_values_with_invalid_utf8_are_rejected() -> None:
    dfa = Dfa.of(followed_value("string"))
    for body in (b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
        assert not dfa.accepts(b'"' + body + b'"')
