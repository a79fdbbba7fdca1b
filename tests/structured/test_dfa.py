"""Automata over bytes: invalid tables, accepted strings, minimization."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.automata import (
    MOST_STATES,
    Dfa,
    Nfa,
    determinize,
    json_integer,
    json_number,
    json_string,
)

ONE_CLASS = [0] * 256
A_AND_OTHERS = [int(byte == ord("a")) for byte in range(256)]


def automaton(transitions: Any, accepting: Any, classes: Any = ONE_CLASS) -> Dfa:
    return Dfa(classes, transitions, accepting)


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
        [-1] * dfa.n_classes,
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


def breadth_first_completion(dfa: Dfa, state: int) -> bytes | None:
    found = deque([(state, b"")])
    seen = {state}
    while found:
        state, text = found.popleft()
        if dfa.accepting[state]:
            return text
        for byte in range(256):
            following = int(dfa.transitions[state, dfa.classes[byte]])
            if following >= 0 and following not in seen:
                seen.add(following)
                found.append((following, text + bytes([byte])))
    return None


# Invalid tables


@pytest.mark.parametrize(
    ("classes", "transitions", "accepting", "message"),
    [
        ([0] * 255, [[0]], [True], "classes: expected 256 numbers, .* got 255"),
        ([0.5] * 256, [[0]], [True], r"classes must be 256 whole numbers, got float64\[256\]"),
        ([[0] * 256], [[0]], [True], r"classes must be 256 whole numbers, got int64\[1, 256\]"),
        (
            [0] * 65 + [1] + [0] * 190,
            [[0]],
            [True],
            "expected classes from 0 to 0, got 1 for byte 0x41",
        ),
        ([-1] * 256, [[0]], [True], "expected classes from 0 to 0, got -1 for byte 0x00"),
        (ONE_CLASS, [0], [True], r"transitions must be whole numbers\[n_states, n_classes\], got"),
        (ONE_CLASS, [[0], [0, 1]], [True], r"transitions must be whole numbers\[n_states, n_c"),
        (ONE_CLASS, [["a"]], [True], r"transitions must be whole numbers\[n_states, n_classes\]"),
        (ONE_CLASS, np.zeros((0, 1), int), np.zeros(0, bool), "expected 1 to 65535 states, got 0"),
        (ONE_CLASS, np.zeros((1, 0), int), [True], "expected 1 to 256 classes, got 0"),
        (ONE_CLASS, np.zeros((1, 257), int), [True], "expected 1 to 256 classes, got 257"),
        (
            ONE_CLASS,
            np.zeros((65_536, 1), int),
            np.ones(65_536, bool),
            "expected 1 to 65535 states, got 65536",
        ),
        (ONE_CLASS, [[1], [2]], [False, True], "from -1 to 1, got 2 for state 1 and class 0"),
        (ONE_CLASS, [[-2]], [True], "from -1 to 0, got -2 for state 0 and class 0"),
        (ONE_CLASS, [[2**40]], [True], "got 1099511627776 for state 0 and class 0"),
        (
            ONE_CLASS,
            [[0]],
            [True, False],
            "accepting: expected an entry for each of the 1 states, got 2",
        ),
        (ONE_CLASS, [[0]], [0], r"accepting must be bool\[n_states\], got int64\[1\]"),
        (
            ONE_CLASS,
            [[0], [0]],
            [False, False],
            "expected at least one accepting state, got none of 2",
        ),
    ],
)
def test_the_error_for_a_wrong_table_names_it(
    classes: Any, transitions: Any, accepting: Any, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Dfa(classes, transitions, accepting)


@pytest.mark.slow
def test_the_maximum_number_of_states_is_accepted() -> None:
    n = MOST_STATES
    following = np.append(np.arange(1, n), -1)[:, None]
    chain = Dfa(ONE_CLASS, following, np.arange(n) == n - 1)
    chain.validate()
    assert chain.minimized() == chain
    assert len(chain.shortest_completion(0)) == n - 1


def test_256_classes_are_accepted() -> None:
    only_a = np.where(np.arange(256) == ord("a"), 1, -1)
    dfa = Dfa(np.arange(256), [only_a, [-1] * 256], [False, True])
    assert dfa.accepts(b"a")
    assert dfa.minimized().n_classes == 2


def test_the_tables_are_read_only_copies() -> None:
    transitions = np.array([[0]])
    dfa = automaton(transitions, [True])
    transitions[0, 0] = -1
    assert dfa.accepts(b"aaa")
    for table in (dfa.classes, dfa.transitions, dfa.accepting):
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0
    assert (dfa.classes.dtype, dfa.transitions.dtype) == (np.uint8, np.int32)


def test_an_automaton_with_an_unreachable_state_is_not_converted() -> None:
    dfa = automaton([[0], [0], [2]], [True, True, True])
    message = r"state 1 of 3: it cannot be reached from state 0; trimmed\(\) removes such states"
    with pytest.raises(InvalidArgumentError, match=message):
        dfa.to_dict()
    assert dfa.trimmed().to_dict()["transitions"] == [[0]]


def test_an_automaton_with_a_dangling_state_is_not_converted() -> None:
    dfa = automaton([[1, 2], [1, 1], [-1, -1]], [False, False, True], A_AND_OTHERS)
    with pytest.raises(InvalidArgumentError, match="state 1 of 3: no accepting state "):
        dfa.to_dict()
    assert dfa.trimmed().to_dict()["transitions"] == [[-1, 1], [-1, -1]]


@pytest.mark.parametrize("reduced", [Dfa.trimmed, Dfa.minimized])
def test_an_automaton_that_accepts_nothing_cannot_be_reduced(reduced: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the automaton accepts no string"):
        reduced(automaton([[0], [1]], [False, True]))


@pytest.mark.parametrize("state", [-1, 1])
def test_a_completion_needs_an_existing_state(state: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"expected a state from 0 to 0, got {state}"):
        automaton([[0]], [True]).shortest_completion(state)


def test_a_walk_needs_an_existing_state() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a state from 0 to 0, got 1"):
        automaton([[0]], [True]).walk(b"", state=1)


def test_a_dangling_state_has_no_completion() -> None:
    with pytest.raises(InvalidArgumentError, match="state 1: no accepting state can"):
        automaton([[1], [-1]], [True, False]).shortest_completion(1)


# Valid automata


def test_a_walk_can_be_split_anywhere() -> None:
    dfa = json_string()
    text = '"é\\ud83d\\ude00"'.encode()
    for cut in range(len(text) + 1):
        assert dfa.walk(text[cut:], dfa.walk(text[:cut])) == dfa.walk(text)
    assert dfa.walk(b"x") == -1
    assert dfa.walk(b"x", -1) == -1


def test_the_dictionary_has_the_librarys_format() -> None:
    dfa = Dfa(A_AND_OTHERS, [[-1, 1], [-1, 1]], [False, True])
    read = json.loads(json.dumps(dfa.to_dict()))
    assert read == {
        "classes": A_AND_OTHERS,
        "transitions": [[-1, 1], [-1, 1]],
        "accepting": [1],
    }
    assert Dfa(read["classes"], read["transitions"], [False, True]) == dfa


def test_automata_with_equal_tables_are_equal() -> None:
    assert automaton([[0]], [True]) == automaton([[0]], [True])
    assert len({automaton([[0]], [True]), automaton([[0]], [True])}) == 1
    assert automaton([[0]], [True]) != automaton([[-1]], [True])
    assert automaton([[0]], [True]) != "an automaton"


@pytest.mark.slow
@given(useful_automata)
def test_trimming_keeps_the_accepted_strings_and_is_valid(dfa: Dfa) -> None:
    trimmed = dfa.trimmed()
    trimmed.validate()
    assert first_difference(dfa, trimmed) is None


@pytest.mark.slow
@given(useful_automata)
def test_minimizing_keeps_the_accepted_strings_and_is_minimal(dfa: Dfa) -> None:
    minimized = dfa.minimized()
    minimized.validate()
    assert first_difference(dfa, minimized) is None
    assert equivalent_states(minimized) == []
    assert len(np.unique(minimized.transitions, axis=1).T) == minimized.n_classes
    assert set(minimized.classes.tolist()) == set(range(minimized.n_classes))


@pytest.mark.slow
@given(useful_automata, useful_automata)
def test_minimized_automata_are_equal_if_and_only_if_equivalent(one: Dfa, other: Dfa) -> None:
    assert (one.minimized() == other.minimized()) == (first_difference(one, other) is None)


@pytest.mark.slow
@given(useful_automata, st.randoms())
def test_the_order_of_states_does_not_change_the_minimized_automaton(dfa: Dfa, random: Any) -> None:
    new = np.array([0, *random.sample(range(1, dfa.n_states), dfa.n_states - 1)])
    old = np.argsort(new)
    shuffled = Dfa(dfa.classes, np.append(new, -1)[dfa.transitions[old]], dfa.accepting[old])
    assert shuffled.minimized() == dfa.minimized()


@given(automata())
def test_the_shortest_completion_matches_breadth_first_search(dfa: Dfa) -> None:
    for state in range(dfa.n_states):
        expected = breadth_first_completion(dfa, state)
        if expected is None:
            with pytest.raises(InvalidArgumentError, match="no accepting state can be reached"):
                dfa.shortest_completion(state)
        else:
            assert dfa.shortest_completion(state) == expected
            assert dfa.accepting[dfa.walk(expected, state)]


# Conversion of nondeterministic automata


def accepts_by_sets(nfa: Nfa, text: bytes) -> bool:
    def without_jumps(states: set[int]) -> set[int]:
        found = list(states)
        for state in found:
            found += [target for target in nfa.jumps[state] if target not in found]
        return set(found)

    states = without_jumps({Nfa.START})
    for byte in text:
        states = without_jumps(
            {
                target
                for state in states
                for first, last, target in nfa.ranges[state]
                if first <= byte <= last
            }
        )
    return Nfa.END in states


@st.composite
def nondeterministic(draw: st.DrawFn) -> Nfa:
    nfa = Nfa()
    n_states = draw(st.integers(2, 6))
    for _ in range(n_states - 2):
        nfa.new_state()
    states = st.integers(0, n_states - 1)
    for state, target in draw(st.lists(st.tuples(states, states), max_size=5)):
        nfa.add_jump(state, target)
    ends = st.tuples(st.sampled_from(b"\0abc\xff"), st.sampled_from(b"\0abc\xff"))
    for state, (a, b), target in draw(st.lists(st.tuples(states, ends, states), max_size=8)):
        nfa.add_range(state, min(a, b), max(a, b), target)
    return nfa


@pytest.mark.slow
@given(nondeterministic(), st.lists(st.lists(st.sampled_from(b"\0ab\xff"), max_size=6)))
def test_conversion_to_deterministic_keeps_the_accepted_strings(
    nfa: Nfa, strings: list[list[int]]
) -> None:
    try:
        dfa = Dfa.from_nfa(nfa)
    except InvalidArgumentError as error:
        assert "accepts no string" in str(error)
        assert not any(accepts_by_sets(nfa, bytes(string)) for string in strings)
        return
    assert dfa == dfa.minimized()
    for string in strings:
        assert dfa.accepts(bytes(string)) == accepts_by_sets(nfa, bytes(string))


def third_from_the_end_is_an_a() -> Nfa:
    nfa = Nfa()
    one, two = nfa.new_state(), nfa.new_state()
    nfa.add_range(Nfa.START, 0, 255, Nfa.START)
    nfa.add_range(Nfa.START, ord("a"), ord("a"), one)
    nfa.add_range(one, 0, 255, two)
    nfa.add_range(two, 0, 255, Nfa.END)
    return nfa


def test_more_than_max_states_are_rejected() -> None:
    assert Dfa.from_nfa(third_from_the_end_is_an_a(), max_states=8).n_states == 8
    with pytest.raises(
        InvalidArgumentError, match="deterministic automaton needs more than 7 states"
    ):
        Dfa.from_nfa(third_from_the_end_is_an_a(), max_states=7)


def test_steps_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinize, "MOST_WORK", 50)
    with pytest.raises(InvalidArgumentError, match="deterministic takes more than 50 steps"):
        Dfa.from_nfa(third_from_the_end_is_an_a())


@pytest.mark.parametrize("max_states", [0, 65_536])
def test_max_states_is_checked(max_states: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"from 1 to 65535, got {max_states}"):
        Dfa.from_nfa(third_from_the_end_is_an_a(), max_states=max_states)


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (0, 256)])
def test_a_range_that_is_not_bytes_is_rejected(first: int, last: int) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"expected a range of bytes .* got {first} to {last}"
    ):
        Nfa().add_range(Nfa.START, first, last, Nfa.END)


def test_a_transition_to_a_missing_state_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a state from 0 to 1, got 2"):
        Nfa().add_jump(Nfa.START, 2)


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


@pytest.mark.parametrize(
    ("begun", "completed"),
    [(b"", b'""'), (b'"\\ud83d', b'\\uDC00"'), (b'"\xf0', b'\x90\x80\x80"'), (b'""', b"")],
)
def test_a_partial_json_string_is_completed(begun: bytes, completed: bytes) -> None:
    dfa = json_string()
    assert dfa.shortest_completion(dfa.walk(begun)) == completed
    assert is_json(begun + completed, str)


@pytest.mark.parametrize("made", [json_string, json_number, json_integer])
def test_the_json_automata_are_cached_and_minimal(made: Any) -> None:
    assert made() is made()
    made().validate()
    assert made() == made().minimized()
