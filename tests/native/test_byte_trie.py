"""Compare the native byte trie and its recognizers with a slow reference implementation.

The reference is a recursive walk over a tree of nodes (``tests/reference/simple_trie.py``). Its
recognizers are in this file and read one byte at a time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from automata_walks import DEAD, Dfa, trimmed
from effort import share
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from native_vocabulary import NativeVocabulary, NativeWalk
from simple_trie import PrefixOf, Recognizer, SimpleTrie

from eliza_ffi.structured.value_automata import followed_value

pytestmark = pytest.mark.slow

MAX_SPACES = 20  # the most bytes of consecutive white space in a JSON value

many = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(120)
)

AUTOMATA = {kind: Dfa.of(followed_value(kind)) for kind in ("string", "number", "integer")}

# ---- reference recognizers ---------------------------------------------------------------------


class Automaton:
    start = 0

    def __init__(self, dfa: Dfa) -> None:
        self._next = dfa.transitions[:, dfa.classes].tolist()
        self._accepting = dfa.accepting.tolist()

    def step(self, state: int, byte: int) -> int | None:
        target = self._next[state][byte]
        return None if target == DEAD else target

    def may_end(self, state: int) -> bool:
        return self._accepting[state]


BEGINS = {
    "value": ("string", "number", "name"),
    "value or ]": ("string", "number", "name"),
    "key": ("member's name",),
    "key or }": ("member's name",),
}


class JsonPlace(NamedTuple):
    """A position in a JSON value: the open brackets, and the part expected or being read."""

    open: str = ""
    expected: str = "value"
    lexeme: int | None = None  # state of the automaton of `expected`, once it has begun
    spaces: int = 0


class JsonValue:
    start = JsonPlace()

    def __init__(self, depth: int = 16) -> None:
        self._depth = depth
        string = Automaton(AUTOMATA["string"])
        self._lexemes = {
            "string": string,
            "member's name": string,
            "number": Automaton(AUTOMATA["number"]),
            "name": Automaton(Dfa.of_texts([b"true", b"false", b"null"])),
        }

    def step(self, place: JsonPlace, byte: int) -> JsonPlace | None:
        lexeme = self._lexemes.get(place.expected)
        if lexeme is not None:
            following = lexeme.step(place.lexeme, byte)
            if following is not None:
                return place._replace(lexeme=following, spaces=0)
            if not lexeme.may_end(place.lexeme):
                return None
            place = JsonPlace(place.open, ":" if "member" in place.expected else "end")
        if byte in b" \t\n\r":
            allowed = place.open and place.spaces < MAX_SPACES
            return place._replace(spaces=place.spaces + 1) if allowed else None
        for kind in BEGINS.get(place.expected, ()):
            following = self._lexemes[kind].step(0, byte)
            if following is not None:
                return JsonPlace(place.open, kind, following)
        return self._bracket_or_sign(place, chr(byte))

    def _bracket_or_sign(self, place: JsonPlace, sign: str) -> JsonPlace | None:
        innermost = place.open[-1:]
        if place.expected.startswith("value") and sign in "{[":
            expected = "key or }" if sign == "{" else "value or ]"
            opened = JsonPlace(place.open + sign, expected)
            return opened if len(opened.open) <= self._depth else None
        if place.expected == ":" and sign == ":":
            return JsonPlace(place.open, "value")
        if place.expected == "end" and sign == "," and innermost:
            return JsonPlace(place.open, "key" if innermost == "{" else "value")
        may_close = place.expected == "end" or place.expected.endswith(f"or {sign}")
        if may_close and innermost + sign in ("{}", "[]"):
            return JsonPlace(place.open[:-1], "end")
        return None

    def may_end(self, place: JsonPlace) -> bool:
        lexeme = self._lexemes.get(place.expected)
        ended = place.expected == "end" or (lexeme is not None and lexeme.may_end(place.lexeme))
        return ended and not place.open


class FramedPlace(NamedTuple):
    """A position in a framed value: in the value, and how many bytes of the frame were read."""

    value: Any
    n_before: int = 0
    n_after: int = 0


class Framed:
    """Recognizes a value between two strings. A byte that could belong to both is the value's."""

    def __init__(self, before: str, value: Any, after: str) -> None:
        self._before, self._value, self._after = before.encode(), value, after.encode()
        self.start = FramedPlace(value.start)

    def step(self, place: FramedPlace, byte: int) -> FramedPlace | None:
        if place.n_before < len(self._before):
            fits = self._before[place.n_before] == byte
            return place._replace(n_before=place.n_before + 1) if fits else None
        if place.n_after == 0:
            following = self._value.step(place.value, byte)
            if following is not None:
                return place._replace(value=following)
            if not self._value.may_end(place.value):
                return None
        fits = self._after[place.n_after : place.n_after + 1] == bytes([byte])
        return place._replace(n_after=place.n_after + 1) if fits else None

    def may_end(self, place: FramedPlace) -> bool:
        return place.n_before == len(self._before) and (
            place.n_after > 0 or self._value.may_end(place.value)
        )

    def is_over(self, place: FramedPlace) -> bool:
        can_continue = place.n_after == 0 and any(
            self._value.step(place.value, byte) is not None for byte in range(256)
        )
        return self.may_end(place) and not can_continue


# ---- random vocabularies and values --------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A kind of value: the span for the library, the reference recognizer, and likely tokens."""

    span: dict[str, Any]
    recognizer: Any
    pieces: tuple[bytes, ...]


PLAIN = (b"a", b"b", b"ab", b"ba", b"c", b"\xc3\xa9", b"\xc3", b"\xa9", b"\x00", b"\xff")
NUMBERS = (b"-", b"0", b"1", b"9", b".", b"e", b"E", b"+", b"12", b",", b"}")
STRINGS = (*PLAIN, b'"', b"\\", b"u", b"d83", b"de0", b"0", b"\\u", b"n", b" ", b"\n", b"\xf0\x9f")
# fmt: off
VALUES = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"a", b"\\", b"1", b"-", b".5", b"e", b"true", b"nu",
    b"ll", b" ", b"\n ", b'{"', b'":', b'"}', b"},", b"]]", b"}}", b",[", b"\xc3", b"\xa9", b'"a"',
    b'{"a":', b'"b":1', b'["', b'",', b'":"', b"0,",
)
# fmt: on


def tables() -> st.SearchStrategy[Dfa]:
    """Draw random DFAs. Six bytes have random classes; all other bytes share one class."""

    def table(n_states: int, n_classes: int) -> st.SearchStrategy[Dfa | None]:
        state = st.integers(DEAD, n_states - 1)
        return st.builds(
            _table,
            st.lists(st.integers(0, n_classes - 1), min_size=7, max_size=7),
            st.lists(
                st.lists(state, min_size=n_classes, max_size=n_classes),
                min_size=n_states,
                max_size=n_states,
            ),
            st.lists(st.booleans(), min_size=n_states, max_size=n_states),
        )

    sizes = st.tuples(st.integers(1, 6), st.integers(1, 4))
    return sizes.flatmap(lambda size: table(*size)).filter(lambda dfa: dfa is not None)


def _table(of_bytes: list[int], moves: list[list[int]], accepting: list[bool]) -> Dfa | None:
    used, of_bytes = np.unique(of_bytes, return_inverse=True)
    classes = np.full(256, of_bytes[0])
    classes[[*b"abc\xc3\xa9\x00"]] = of_bytes[1:]
    return trimmed(Dfa(classes.astype(np.uint8), np.array(moves)[:, used], np.array(accepting)))


FOLLOWS = st.lists(st.sampled_from(["}", ",", ",a", ",ab", "}é"]), min_size=1, unique=True)


@st.composite
def values(draw: st.DrawFn, kind: str) -> Value:
    """Draw a value of this kind, with or without fixed text around it."""
    pieces = {"string": STRINGS, "number": NUMBERS, "integer": NUMBERS, "value": VALUES}
    pieces["followed"] = VALUES
    inner: Any
    if kind in ("table", "texts", "followed"):
        if kind == "table":
            dfa = draw(tables())
        elif kind == "texts":
            dfa = Dfa.of_texts(
                draw(st.lists(st.lists(st.sampled_from(PLAIN)).map(b"".join), min_size=1))
            )
        else:
            dfa = Dfa.of(
                followed_value(draw(st.sampled_from(list(AUTOMATA))), tuple(draw(FOLLOWS)))
            )
        span, inner = {"dfa": dfa.to_form()}, Automaton(dfa)
    elif kind == "value":
        depth = draw(st.sampled_from([1, 2, 3, 16, 64]))
        span, inner = {"json": kind, "depth": depth}, JsonValue(depth)
    else:
        dfa = AUTOMATA[kind]
        span, inner = {"json": kind}, Automaton(dfa)
    around = st.text(alphabet='ab"}],: é1', max_size=3)
    before, after = draw(around), draw(around)
    frame = {name: text for name, text in (("before", before), ("after", after)) if text}
    return Value(span | frame, Framed(before, inner, after), pieces.get(kind, PLAIN))


@st.composite
def vocabularies(draw: st.DrawFn, pieces: Sequence[bytes]) -> list[bytes]:
    """Draw tokens: pieces, random bytes, prefixes of other tokens, duplicates, empty tokens."""
    some = st.lists(st.sampled_from(pieces), max_size=5).map(b"".join)
    tokens = draw(st.lists(st.one_of(some, st.binary(max_size=3)), min_size=1, max_size=50))
    of_long = draw(st.lists(st.sampled_from(pieces), max_size=20).map(b"".join))
    tokens += draw(st.sampled_from([[], [of_long], [of_long[:n] for n in range(len(of_long))]]))
    if draw(st.booleans()):
        tokens += [bytes([byte]) for byte in range(256)]
    return tokens


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["table", "texts", "followed", "string", "number", "integer", "value"]
)
@given(data=st.data())
@many
def test_masks_match_the_recursive_walk(hooks_path: Path, kind: str, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    texts = data.draw(vocabularies(value.pieces))
    native, simple = NativeVocabulary(hooks_path, texts), SimpleTrie(texts)
    assert native.n_nodes == simple.n_nodes
    for _ in range(3):  # later walks use masks that earlier walks have cached
        check_walk(native, simple, value, texts, data)


def check_walk(
    native: NativeVocabulary,
    simple: SimpleTrie,
    value: Value,
    texts: Sequence[bytes],
    data: st.DataObject,
) -> None:
    recognizer, place = value.recognizer, value.recognizer.start
    walk = native.walk(value.span)
    for _ in range(12):
        allowed = simple.allowed(recognizer, place)
        assert walk.allowed() == allowed
        assert [token for token in range(len(texts)) if walk.allows(token)] == allowed
        assert walk.may_end() == recognizer.may_end(place)
        assert walk.is_over() == recognizer.is_over(place)
        if not allowed:
            break
        # Prefer the longer tokens, which have low ids. A walk of single bytes rarely leaves its
        # first string.
        token = data.draw(st.sampled_from([each for each in allowed if each < 70] or allowed))
        place = place_after(recognizer, place, texts[token])
        walk.accept(token)


def place_after(recognizer: Recognizer, place: Any, text: bytes) -> Any:
    for byte in text:
        place = recognizer.step(place, byte)
    return place


@pytest.mark.parametrize("first", ["[[[{", '[{"a":{'])
def test_a_token_may_close_brackets_and_continue_outside_of_them(
    hooks_path: Path, first: str
) -> None:
    """Whether the token ``},1`` is allowed depends on the brackets outside of the closed one."""
    texts = [b"},1", *(bytes([byte]) for byte in range(256))]
    native, simple = NativeVocabulary(hooks_path, texts), SimpleTrie(texts)
    value = JsonValue()
    for opening in ("[[[{", '[[{"a":{', first):
        walk, place = native.walk({"json": "value"}), value.start
        for byte in opening.encode():
            walk.accept(1 + byte)
            place = value.step(place, byte)
        assert walk.allowed() == simple.allowed(value, place)


@given(before=st.text("ab", max_size=3), data=st.data())
@many
def test_choices_allow_exactly_the_tokens_that_can_lead_to_a_choice(
    hooks_path: Path, before: str, data: st.DataObject
) -> None:
    choice = st.text("abcé", min_size=1, max_size=6)
    choices = data.draw(st.lists(choice, min_size=1, max_size=8, unique=True))
    whole = [(before + each).encode() for each in choices]
    texts = data.draw(vocabularies([*PLAIN, *whole]))
    native, spelling = NativeVocabulary(hooks_path, texts), Spelling(texts, whole)
    span = {"before": before, "choices": choices}
    unspelled = [text for text in whole if text not in spelling.reached]
    if unspelled:
        with pytest.raises(ValueError, match="cannot be spelled"):
            native.walk(span)
        return
    for text in whole:
        walk, place = native.walk(span), b""
        for _ in range(12):
            allowed = spelling.allowed(place)
            assert walk.allowed() == allowed
            usable = [token for token in allowed if text.startswith(place + texts[token])]
            if not usable:
                break
            token = data.draw(st.sampled_from(usable))
            place += texts[token]
            walk.accept(token)


class Spelling:
    def __init__(self, tokens: Sequence[bytes], texts: Sequence[bytes]) -> None:
        self._tokens, self._texts = tokens, texts
        self._trie, self._prefixes = SimpleTrie(tokens), PrefixOf(texts)
        self._can_end: dict[bytes, bool] = {}
        self.reached = {b""}
        waiting = deque([b""])
        while waiting:
            place = waiting.popleft()
            for token in self.allowed(place):
                longer = place + tokens[token]
                if longer not in self.reached:
                    self.reached.add(longer)
                    waiting.append(longer)

    def allowed(self, place: bytes) -> list[int]:
        """Return the tokens after which a string can still be completed."""
        allowed = self._trie.allowed(self._prefixes, place)
        return [token for token in allowed if self._leads_to_end(place + self._tokens[token])]

    def _leads_to_end(self, place: bytes) -> bool:
        if place not in self._can_end:
            self._can_end[place] = place in self._texts or bool(self.allowed(place))
        return self._can_end[place]


def test_a_vocabulary_may_consist_of_empty_tokens(hooks_path: Path) -> None:
    native = NativeVocabulary(hooks_path, [b"", b""])
    assert native.n_nodes == 1
    assert native.walk({"json": "value"}).allowed() == []


# ---- JSON, byte by byte --------------------------------------------------------------------------


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
        text[at:until] = draw(st.sampled_from([*VALUES, *STRINGS, b"", b"NaN", b"+"]))
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
