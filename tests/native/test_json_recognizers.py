"""Compare the native recognizers of JSON with the package's automata and with Python's reader.

``native/tests/byte_trie_test.cpp`` compares the masks that follow from them with a simple walk.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from automata_walks import DEAD, Dfa
from effort import share
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from native_vocabulary import NativeVocabulary, NativeWalk

from eliza_ffi.structured.value_automata import followed_value

pytestmark = pytest.mark.slow

MAX_SPACES = 20  # the most bytes of consecutive white space in a JSON value

AUTOMATA = {kind: Dfa.of(followed_value(kind)) for kind in ("string", "number", "integer")}

# fmt: off
PIECES = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"a", b"\\", b"1", b"-", b".5", b"e", b"true", b"nu",
    b"ll", b" ", b"\n ", b'{"', b'":', b'"}', b"},", b"]]", b"\xc3", b"\xa9", b"\x00", b"\xff",
    b"\\u", b"d83", b"de0", b"0", b"n", b"\xf0\x9f", b"NaN", b"+", b"",
)
# fmt: on


def test_a_vocabulary_may_consist_of_empty_tokens(hooks_path: Path) -> None:
    native = NativeVocabulary(hooks_path, [b"", b""])
    assert native.n_nodes == 1
    assert native.walk({"json": "value"}).allowed() == []


@pytest.fixture(scope="session")
def single_bytes(hooks_path: Path) -> NativeVocabulary:
    """Return the vocabulary whose token i is byte i."""
    return NativeVocabulary(hooks_path, [bytes([byte]) for byte in range(256)])


def accepts(walk: NativeWalk, text: bytes) -> bool:
    for byte in text:
        if not walk.allows(byte):
            return False
        walk.accept(byte)
    return walk.may_end()


@pytest.mark.parametrize("kind", AUTOMATA)
def test_native_json_automata_match_the_package_in_every_state(
    single_bytes: NativeVocabulary, kind: str
) -> None:
    dfa = AUTOMATA[kind]
    path_to = {0: b""}
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        walk = single_bytes.walk({"json": kind})
        for byte in path_to[state]:
            walk.accept(byte)
        targets = dfa.transitions[state, dfa.classes]
        assert walk.allowed() == np.flatnonzero(targets != DEAD).tolist()
        assert walk.may_end() == bool(dfa.accepting[state])
        for byte in walk.allowed():
            if int(targets[byte]) not in path_to:
                path_to[int(targets[byte])] = path_to[state] + bytes([byte])
                waiting.append(int(targets[byte]))
    assert len(path_to) == len(dfa.accepting)


documents = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    return json.dumps(
        draw(documents),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", "\r\n: ")])),
    ).encode()


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """Draw a string and change it in up to three places."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        until = at + draw(st.integers(0, 2))
        text[at:until] = draw(st.sampled_from(PIECES))
    return bytes(text)


class NotJsonError(ValueError):
    """The string has a constant that is not JSON, such as NaN."""


def is_json(text: bytes) -> bool:
    """Return whether ``json.loads`` accepts a string and it is within the documented limits."""
    try:
        decoded = text.decode()
        if decoded != decoded.strip(" \t\n\r"):
            return False
        value = json.loads(decoded, parse_constant=_reject, object_pairs_hook=tuple)
        json.dumps(value, ensure_ascii=False).encode()  # fails on a lone surrogate
        return _depth(value) <= 16 and _fewest_spaces(decoded) <= MAX_SPACES
    except ValueError:
        return False


def _reject(name: str) -> None:
    raise NotJsonError(name)


def _depth(value: Any) -> int:
    """Return the nesting depth of arrays and objects; objects are tuples of pairs here."""
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    if isinstance(value, tuple):
        return 1 + max((_depth(each) for _, each in value), default=0)
    return 0


def _fewest_spaces(text: str) -> int:
    longest = run = 0
    inside = escaped = False
    for char in text:
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
            continue
        inside = char == '"'
        run = run + 1 if char in " \t\n\r" else 0
        longest = max(longest, run)
    return longest


@given(text=st.one_of(json_texts(), mutated(json_texts())))
@example(b'{"\\ud83d\\ude00":[1e-5,-0.0]}')
@example(b'"\\ud83d"')
@example(b'{"a":1,}')
@example(b"[1 2]")
@example(b"[" + b" " * 20 + b"1]")
@example(b"[" + b" " * 21 + b"1]")
@example(b" 1")
@example(b"[" * 16 + b"]" * 16)
@example(b"[" * 17 + b"]" * 17)
@example(b"")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(800))
def test_json_values_match_the_standard_library(
    single_bytes: NativeVocabulary, text: bytes
) -> None:
    assert accepts(single_bytes.walk({"json": "value"}), text) == is_json(text)
