"""Automata over bytes: minimization, and the automata of JSON values."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.automata import Dfa, json_integer, json_number, json_string

ONE_CLASS = [0] * 256
A_AND_OTHERS = [int(byte == ord("a")) for byte in range(256)]


def automaton(transitions: Any, accepting: Any, classes: Any = ONE_CLASS) -> Dfa:
    return Dfa(np.array(classes), np.array(transitions), np.array(accepting))


# Few states and classes, so that unreachable, dangling and equivalent states are frequent.
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


def first_difference(one: Dfa, other: Dfa) -> bytes | None:
    """Search pairs of states for the shortest string that only one of the automata accepts."""
    found = deque([(0, 0, b"")])
    seen = {(0, 0)}
    while found:
        a, b, text = found.popleft()
        if (a >= 0 and bool(one.accepting[a])) != (b >= 0 and bool(other.accepting[b])):
            return text
        for byte in range(256):
            pair = (
                -1 if a < 0 else int(one.transitions[a, one.classes[byte]]),
                -1 if b < 0 else int(other.transitions[b, other.classes[byte]]),
            )
            if pair not in seen:
                seen.add(pair)
                found.append((*pair, text + bytes([byte])))
    return None


def equivalent_states(dfa: Dfa) -> list[tuple[int, int]]:
    """Return the pairs of equivalent states, by the table-filling algorithm."""
    n = dfa.n_states
    accepting = [*dfa.accepting.tolist(), False]
    rows = [
        *dfa.transitions.tolist(),
        [-1] * dfa.transitions.shape[1],
    ]  # index -1, the last row, is the dead state
    apart = {(a, b) for a in range(n + 1) for b in range(n + 1) if accepting[a] != accepting[b]}
    grows = True
    while grows:
        more = {
            (a, b)
            for a in range(n + 1)
            for b in range(n + 1)
            if (a, b) not in apart
            and any((x % (n + 1), y % (n + 1)) in apart for x, y in zip(rows[a], rows[b]))  # noqa: B905
        }
        apart |= more
        grows = bool(more)
    return [(a, b) for a in range(n + 1) for b in range(a) if (a, b) not in apart]


def test_an_automaton_is_trimmed_in_the_same_order() -> None:
    dfa = automaton([[1, 2], [1, 1], [-1, -1], [0, 3]], [False, False, True, True], A_AND_OTHERS)
    assert dfa.trimmed().to_dict() == {
        "classes": A_AND_OTHERS,
        "transitions": [[-1, 1], [-1, -1]],
        "accepting": [1],
    }


@pytest.mark.parametrize("reduced", [Dfa.trimmed, Dfa.minimized])
def test_an_automaton_that_accepts_nothing_cannot_be_reduced(reduced: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the automaton accepts no string"):
        reduced(automaton([[0], [1]], [False, True]))


@pytest.mark.slow
def test_a_long_chain_of_states_is_minimized() -> None:
    n = 65_535
    chain = automaton(np.append(np.arange(1, n), -1)[:, None], np.arange(n) == n - 1)
    assert chain.minimized().to_dict() == chain.to_dict()


@pytest.mark.slow
@given(useful_automata)
def test_trimming_keeps_the_accepted_strings_and_is_valid(dfa: Dfa) -> None:
    trimmed = dfa.trimmed()
    assert trimmed.trimmed().n_states == trimmed.n_states
    assert first_difference(dfa, trimmed) is None


@pytest.mark.slow
@given(useful_automata)
def test_minimizing_keeps_the_accepted_strings_and_is_minimal(dfa: Dfa) -> None:
    minimized = dfa.minimized()
    assert first_difference(dfa, minimized) is None
    assert equivalent_states(minimized) == []
    assert len(np.unique(minimized.transitions, axis=1).T) == minimized.transitions.shape[1]
    assert set(minimized.classes.tolist()) == set(range(minimized.transitions.shape[1]))


@pytest.mark.slow
@given(useful_automata, useful_automata)
def test_minimized_automata_are_equal_if_and_only_if_equivalent(one: Dfa, other: Dfa) -> None:
    are_equal = one.minimized().to_dict() == other.minimized().to_dict()
    assert are_equal == (first_difference(one, other) is None)


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
