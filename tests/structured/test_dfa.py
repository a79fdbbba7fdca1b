"""Automata over bytes: useless parts, and the automata of JSON values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from automata_walks import first_difference
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.automata import Dfa, json_integer, json_number, json_string

ONE_CLASS = [0] * 256
A_AND_OTHERS = [int(byte == ord("a")) for byte in range(256)]


def automaton(transitions: Any, accepting: Any, classes: Any = ONE_CLASS) -> Dfa:
    return Dfa(np.array(classes), np.array(transitions), np.array(accepting))


# Few states and classes, so that unreachable and dangling states are frequent.
@st.composite
def automata(draw: st.DrawFn) -> Dfa:
    n_states = draw(st.integers(1, 7))
    n_classes = draw(st.integers(1, 3))
    row = st.lists(st.integers(-1, n_states - 1), min_size=n_classes, max_size=n_classes)
    accepting = draw(st.lists(st.booleans(), min_size=n_states, max_size=n_states))
    assume(any(accepting))
    return Dfa(
        np.array([byte % n_classes for byte in range(256)]),
        np.array(draw(st.lists(row, min_size=n_states, max_size=n_states))),
        np.array(accepting),
    )


def accepts_some_string(dfa: Dfa) -> bool:
    try:
        dfa.trimmed()
    except InvalidArgumentError:
        return False
    return True


useful_automata = automata().filter(accepts_some_string)


def test_an_automaton_is_trimmed_in_the_same_order() -> None:
    dfa = automaton([[1, 2], [1, 1], [-1, -1], [0, 3]], [False, False, True, True], A_AND_OTHERS)
    assert dfa.trimmed().to_dict() == {
        "classes": A_AND_OTHERS,
        "transitions": [[-1, 1], [-1, -1]],
        "accepting": [1],
    }


def test_an_automaton_that_accepts_nothing_cannot_be_trimmed() -> None:
    with pytest.raises(InvalidArgumentError, match="the automaton accepts no string"):
        automaton([[0], [1]], [False, True]).trimmed()


@pytest.mark.slow
@given(useful_automata)
def test_trimming_keeps_the_accepted_strings_and_only_useful_parts(dfa: Dfa) -> None:
    trimmed = dfa.trimmed()
    assert first_difference(dfa, trimmed) is None
    assert trimmed.trimmed().n_states == trimmed.n_states
    assert len(np.unique(trimmed.transitions, axis=1).T) == trimmed.transitions.shape[1]
    assert set(trimmed.classes.tolist()) == set(range(trimmed.transitions.shape[1]))


# JSON


def is_json(text: bytes, kind: type) -> bool:
    """Return whether this is a single JSON value of a kind that decodes to valid Unicode."""

    def reject(constant: str) -> None:
        raise ValueError(constant)

    try:
        decoded = text.decode("utf-8")
        value = json.loads(decoded, parse_constant=reject)  # NaN and Infinity are not JSON
        if isinstance(value, str):
            value.encode("utf-8")  # Python's JSON reader accepts escaped lone surrogates
    except ValueError:
        return False
    return type(value) is kind and decoded == decoded.strip()


@pytest.mark.parametrize(
    "text",
    [
        rb'""',
        rb'"a"',
        '"é漢😀\x7f"'.encode(),
        rb'"\"\\\/\b\f\n\r\t"',
        rb'"\u0000\uFFFF\ud7ff\uE000"',
        rb'"\ud83d\ude00\uDBFF\uDFFF"',
        '"\U0010ffff\ud7ff\ue000\uffff"'.encode(),
    ],
)
def test_a_json_string_is_accepted(text: bytes) -> None:
    assert json_string().accepts(text)
    assert is_json(text, str)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'"',
        b'"a',
        b"a",
        b'"a"b"',
        b'"a" ',
        b'"\n"',
        b'"\0"',
        b'"\x1f"',
        rb'"\"',
        rb'"\a"',
        rb'"\u12"',
        rb'"\u123g"',
        rb'"\ud83d"',  # a high surrogate alone, twice, before another character and another escape
        rb'"\ud83d\ud83d\ude00"',
        rb'"\ud83dx"',
        rb'"\ud83d\u0041"',
        rb'"\ud83d\n"',
        rb'"\ude00"',  # a low one alone
        rb'"\ude00\ud83d"',
        b'"\x80"',  # a continuation byte alone
        b'"\xc3"',
        b'"\xc0\x80"',  # overlong
        b'"\xc1\xbf"',
        b'"\xe0\x9f\xbf"',
        b'"\xf0\x8f\xbf\xbf"',
        b'"\xed\xa0\x80"',  # surrogates
        b'"\xed\xbf\xbf"',
        b'"\xf4\x90\x80\x80"',  # beyond U+10FFFF
        b'"\xf5\x80\x80\x80"',
        b'"\xff"',
    ],
)
def test_a_malformed_json_string_is_rejected(text: bytes) -> None:
    assert not json_string().accepts(text)
    assert not is_json(text, str)


string_pieces = st.one_of(
    st.sampled_from([b'"', b"\\", b"\\u", rb"\ud83d", rb"\uDE00", rb"\u00e9", rb"\n"]),
    st.sampled_from(
        [b"\xc3\xa9", b"\xf0\x9f", b"\x98\x80", b"\xed", b"\xa0\x80", b"a", b"\0", b" "]
    ),
    st.binary(min_size=1, max_size=1),
)


@given(st.lists(string_pieces, max_size=8).map(b"".join))
@example(b"")
def test_json_strings_are_the_strings_that_pythons_json_accepts(inside: bytes) -> None:
    for text in (b'"' + inside + b'"', inside):
        assert json_string().accepts(text) == is_json(text, str)


@given(st.text(), st.booleans())
def test_any_text_as_a_json_string_is_accepted(text: str, ascii_only: bool) -> None:
    assert json_string().accepts(json.dumps(text, ensure_ascii=ascii_only).encode())


@given(st.text(alphabet="-+.eE0190 aN\n", max_size=8) | st.binary(max_size=3).map(repr))
@example("NaN")
@example("-Infinity")
@example("\u0661")  # a digit in another script
def test_json_numbers_are_the_numbers_that_pythons_json_accepts(text: str) -> None:
    data = text.encode()
    assert json_integer().accepts(data) == is_json(data, int)
    assert json_number().accepts(data) == (is_json(data, int) or is_json(data, float))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_any_number_as_json_is_accepted(real: float, whole: int) -> None:
    assert json_number().accepts(json.dumps(real).encode())
    assert json_number().accepts(json.dumps(whole).encode())
    assert json_integer().accepts(json.dumps(whole).encode())
