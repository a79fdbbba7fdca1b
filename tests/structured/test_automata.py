"""Automata: regular expressions compared with Python's matching, and JSON values with `json`."""

from __future__ import annotations

import doctest
import json
import re

import numpy as np
import pytest
from automata_walks import first_difference, shortest_completion
from hypothesis import example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured import automata
from eliza_ffi.structured.automata import (
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    STRING_PATTERN,
    compile_regex,
)

DATE_TIME = (
    r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)"
    r"(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
EMAIL = (
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
PHONE = r"\+?[1-9]\d{1,14}|(?:\(\d{3}\) |\d{3}-)\d{3}-\d{4}"


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("", [""], ["a", "\n"]),
        ("abc", ["abc"], ["", "ab", "abcd", "abd"]),
        ("é漢😀", ["é漢😀"], ["é漢", "e漢😀"]),
        (".", ["a", "é", "漢", "😀", "\r", "\0", "\U0010ffff"], ["", "\n", "ab"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)(?:c|d)", ["ac", "bd"], ["a", "cd"]),
        ("(?P<x>a)(?P<y1>b)", ["ab"], ["a"]),
        ("a*", ["", "a", "aaaa"], ["b", "ab"]),
        ("a+b?", ["a", "aab"], ["", "b", "abb"]),
        ("a*?b+?c??d{2,3}?", ["bdd", "aabbcddd"], ["bd", "add"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a", ""]),
        ("a{1,3}", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}b{0,0}", [""], ["a", "b"]),
        ("a{002}", ["aa"], ["a"]),
        ("(?:ab){2,3}", ["abab", "ababab"], ["ab", "aba", "abababab"]),
        ("(?:a*)*(?:b?)+", ["", "aabb"], ["ba"]),
        ("[a-c]x[^a-c]", ["axd", "cxé", "bx\n"], ["dxd", "axb"]),
        (r"[a-]b[-c]d[+-\-]", ["abcd-", "-b-d,", "abcd+"], ["bbcd-", "abcd."]),
        ("[]a]{,2}", ["", "]a"], ["b", "aaa"]),
        (r"[\]\[^\\-]", ["]", "[", "^", "\\", "-"], ["", "a"]),
        ("[.*+?(){}|$]", [".", "*", "+", "?", "(", ")", "{", "}", "|", "$"], ["a"]),
        ("[^é-漢]", ["a", "\U00010000", "è"], ["é", "漢", "ж"]),
        ("[à-ü😀-😂]", ["à", "é", "ü", "😁"], ["þ", "😃", "a"]),
        (r"[\u0000-\uFFFF]", ["\0", "\ud7ff", "\ue000", "\uffff"], ["\U00010000"]),
        (r"\d\D", ["1a", "1é"], ["\u0661a", "11", "a1"]),
        (r"\w\W", ["_ ", "zé", "A-"], ["é ", "ab"]),
        (r"\s\S", [" a", "\va", "\té"], ["\xa0a", "  "]),
        (r"[\d.-][^\s\d]", ["1a", ".b", "-é"], ["aa", "1 ", "12"]),
        (r"[\w-][\b]", ["-\b", "a\b"], ["-b", "--"]),
        (r"\n\r\t\f\v\0", ["\n\r\t\f\v\0"], ["nrtfv0"]),
        (r"\x41\u00e9\U0001F600\07\101", ["Aé😀\aA"], ["x41"]),
        (r"a[\ud800-\udfff]?", ["a"], ["", "aa"]),
        (r"\.\*\/\-\ \{\_\"", ['.*/- {_"'], [""]),
        ("a{b}]}{", ["a{b}]}{"], ["ab"]),
        ("{", ["{"], [""]),
        ("a{1, 2}", ["a{1, 2}"], ["a", "aa"]),
        ("^a$", ["a"], ["^a$", "a\n"]),
        ("^a|b$|^^c$$", ["a", "b", "c"], ["^a", ""]),
        ("^$", [""], ["^$"]),
        (r"\A(?:a|(^b))\Z", ["a", "b"], ["ab"]),
        (
            DATE_TIME,
            ["2024-02-29T23:59:60Z", "2024-12-01T00:00:00.123+05:30"],
            ["2024-13-01T00:00:00Z", "2024-12-01 00:00:00Z", "2024-12-01T24:00:00Z", "x"],
        ),
        (
            EMAIL,
            ["a@b", "first.last+tag@example.co.uk", "a@" + "b" * 63],
            ["a@", "@b", "a b@c", "a@-b", "a@b-", "a@b..c", "a@" + "b" * 64],
        ),
        (
            UUID,
            ["123e4567-e89b-12d3-a456-426614174000"],
            ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"],
        ),
        (PHONE, ["+14155550123", "(415) 555-0123", "415-555-0123"], ["+0123", "(415)555-0123"]),
    ],
)
def test_a_pattern_matches_the_expected_strings(
    pattern: str, accepted: list[str], rejected: list[str]
) -> None:
    automaton = compile_regex(pattern)
    assert [text for text in accepted if not automaton.accepts(text.encode())] == []
    assert [text for text in rejected if automaton.accepts(text.encode())] == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(a)\1", "a backreference is not supported"),
        (r"(?P<x>a)(?P=x)", "a backreference is not supported"),
        ("a(?=b)", "lookaround is not supported"),
        ("a(?<!b)", "lookaround is not supported"),
        ("(a)?(?(1)b|c)", "a conditional is not supported"),
        ("(?i)a", "flags are not supported"),
        ("a(?-s:b)", "flags are not supported"),
        (r"a\b", "an anchor inside the pattern or a word boundary is not supported"),
        ("a^b", "an anchor inside the pattern or a word boundary is not supported"),
        ("(?:a$)*", "an anchor inside the pattern or a word boundary is not supported"),
        (r"\p{L}", r"bad escape \p at position 0"),
        ("*a", "nothing to repeat at position 0"),
        ("a{3,2}", "min repeat greater than max repeat at position 2"),
        ("a{" + "9" * 5000 + "}", ""),
        ("a(b", "missing ), unterminated subpattern at position 1"),
        ("a[b", "unterminated character set at position 1"),
        (r"a\ud800", "it matches no text"),
        (r"[^\d\D]", "it matches no text"),
        ("a" * 262_145, "expected at most 262144 characters"),
        ("(" * 100_000, "its groups are nested too deeply"),
        ("a{65536}", "its automaton needs more than 65535 states"),
        ("(a|b)*a(a|b){100}", "its automaton needs more than 65535 states"),
        pytest.param(
            "(?:a|b|ab){0,3000}",
            "its automaton takes more than 8388608 steps",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_error_for_an_unsupported_pattern_names_the_problem(pattern: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match="^cannot compile the pattern ") as caught:
        compile_regex(pattern)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_pattern_must_be_a_string() -> None:
    with pytest.raises(InvalidArgumentError, match="pattern must be a string, got bytes"):
        compile_regex(b"a")  # type: ignore[arg-type]


def test_excluded_characters_never_occur() -> None:
    without = compile_regex('.*|"|[a"]{2}', '"\\')
    assert first_difference(without, compile_regex(r'[^"\\\n]*')) is None
    with pytest.raises(InvalidArgumentError, match="it matches no text"):
        compile_regex('a"', '"')


@pytest.mark.parametrize(
    ("pattern", "n_states"),
    [("a{999}", 1000), ("(?:a?){8000}", 8001), ("(?:a" * 50 + ")+" * 50, 52)],
)
def test_repetitions_need_few_states(pattern: str, n_states: int) -> None:
    assert compile_regex(pattern).n_states == n_states


# Comparison with Python


def _is_empty(pattern: str) -> bool:
    """Return whether no text can match, as with ``[^\\d\\D]``."""
    try:
        compile_regex(pattern)
    except InvalidArgumentError as error:
        assert "it matches no text" in str(error) and "[" in pattern
        return True
    return False


ALPHABET = "ab-_0 \né漢😀\ud7ff\ue000\U0010ffff"
CLASS_CHARACTERS = ["a", "b", "0", "_", "é", "漢", "😀", r"\-", r"\]", r"\n", r"\u00e8", r"\x61"]

literals = st.sampled_from(["a", "b", "0", "_", " ", "-", "é", "漢", "😀", r"\n", r"\-", r"\xe9"])
sets = st.sampled_from([r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"])
class_ranges = st.sampled_from(["a-z", "0-a", "a-é", "é-漢", r"\x00-\x7f", r"漢-\U0010ffff", "à-ü"])
class_parts = st.one_of(st.sampled_from(CLASS_CHARACTERS), sets, class_ranges)
classes = st.builds(
    "[{}{}]".format, st.sampled_from(["", "^"]), st.lists(class_parts, min_size=1).map("".join)
)
quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{1,3}", "{0}", "*?", "{2,3}?"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=4).map("|".join).map("(?:{})".format),
        st.builds("(?:{}){}".format, inner, quantifiers),
        inner.map("({}|)".format),
    )


atoms = st.one_of(literals, sets, st.just("."), classes)
patterns = st.recursive(atoms, larger, max_leaves=10).filter(lambda each: not _is_empty(each))
texts = st.text(alphabet=ALPHABET, max_size=6)


@pytest.mark.slow
@given(patterns, st.lists(texts, max_size=20))
@example("(?:a|ab)(?:c|bcd)(?:d*)", ["abcd", "abd", "ac"])
@example("(?:(?:a?)*b?){2}", ["", "ab", "aabb", "bab", "baba"])
def test_the_same_strings_match_as_in_python(pattern: str, texts: list[str]) -> None:
    automaton = compile_regex(pattern)
    python = re.compile(pattern, re.ASCII)
    for text in texts:
        assert automaton.accepts(text.encode()) == bool(python.fullmatch(text)), text


@pytest.mark.slow
@given(patterns, st.data())
def test_text_written_by_the_automaton_matches_in_python(pattern: str, data: st.DataObject) -> None:
    automaton = compile_regex(pattern)
    written = bytearray()
    state = 0
    for _ in range(data.draw(st.integers(0, 8))):
        possible = np.flatnonzero(automaton.transitions[state, automaton.classes] >= 0).tolist()
        if not possible:
            break
        written.append(data.draw(st.sampled_from(possible)))
        state = int(automaton.transitions[state, automaton.classes[written[-1]]])
    written += shortest_completion(automaton, state)
    assert re.fullmatch(pattern, written.decode(), re.ASCII)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(?:a*)*", "a*"),
        ("a|b|c", "[abc]"),
        ("a+", "aa*"),
        ("(?:a|b)*a", "(?:b*a)+"),
        ("[^a]", r"[\0-`b-\U0010ffff]"),
        ("(?:a?){3}", "a{0,3}"),
        (r"[\s\S]", r"[\d\D]"),
        (r"[\u0000-\uffff]|[\U00010000-\U0010ffff]", r"[\w\W]"),
    ],
)
def test_equivalent_patterns_match_the_same_strings(one: str, other: str) -> None:
    assert first_difference(compile_regex(one), compile_regex(other)) is None


# UTF-8


@given(st.binary(max_size=8))
@example(b"\xc0\x80")
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
def test_bytes_match_any_character_exactly_if_they_are_utf8(data: bytes) -> None:
    try:
        data.decode("utf-8")
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    assert compile_regex(r"[\s\S]*").accepts(data) == is_utf8


@pytest.mark.slow
def test_every_unicode_character_matches() -> None:
    automaton = compile_regex(r"[\s\S]*")
    first_invalid, last_invalid = 0xD800, 0xDFFF
    text = "".join(map(chr, [*range(first_invalid), *range(last_invalid + 1, 0x110000)]))
    rows = automaton.transitions.tolist()
    state = 0
    for of_class in automaton.classes[np.frombuffer(text.encode(), np.uint8)].tolist():
        state = rows[state][of_class]
        assert state >= 0
    assert automaton.accepting[state]


def test_a_compiled_pattern_converts_to_the_librarys_format() -> None:
    compiled = compile_regex("[ab]+").to_dict()
    assert compiled["transitions"] == [[-1, 1], [-1, 1]]
    assert compiled["accepting"] == [1]
    assert [byte for byte in range(256) if compiled["classes"][byte]] == [0x61, 0x62]


def test_the_docstring_examples_are_correct() -> None:
    failed, attempted = doctest.testmod(automata)
    assert attempted
    assert not failed


# JSON

JSON_STRING, JSON_NUMBER, JSON_INTEGER = map(
    compile_regex, (STRING_PATTERN, NUMBER_PATTERN, INTEGER_PATTERN)
)


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
    ("text", "is_valid"),
    [
        (rb'""', True),
        (rb'"a"', True),
        ('"é漢😀\x7f"'.encode(), True),
        (rb'"\"\\\/\b\f\n\r\t"', True),
        (rb'"\u0000\uFFFF\ud7ff\uE000"', True),
        (rb'"\ud83d\ude00\uDBFF\uDFFF"', True),
        ('"\U0010ffff\ud7ff\ue000\uffff"'.encode(), True),
        (b"", False),
        (b'"', False),
        (b'"a', False),
        (b"a", False),
        (b'"a"b"', False),
        (b'"a" ', False),
        (b'"\n"', False),
        (b'"\0"', False),
        (b'"\x1f"', False),
        (rb'"\"', False),
        (rb'"\a"', False),
        (rb'"\u12"', False),
        (rb'"\u123g"', False),
        (
            rb'"\ud83d"',
            False,
        ),  # a high surrogate alone, twice, before another character and another escape
        (rb'"\ud83d\ud83d\ude00"', False),
        (rb'"\ud83dx"', False),
        (rb'"\ud83d\u0041"', False),
        (rb'"\ud83d\n"', False),
        (rb'"\ude00"', False),  # a low one alone
        (rb'"\ude00\ud83d"', False),
        (b'"\x80"', False),  # a continuation byte alone
        (b'"\xc3"', False),
        (b'"\xc0\x80"', False),  # overlong
        (b'"\xc1\xbf"', False),
        (b'"\xe0\x9f\xbf"', False),
        (b'"\xf0\x8f\xbf\xbf"', False),
        (b'"\xed\xa0\x80"', False),  # surrogates
        (b'"\xed\xbf\xbf"', False),
        (b'"\xf4\x90\x80\x80"', False),  # beyond U+10FFFF
        (b'"\xf5\x80\x80\x80"', False),
        (b'"\xff"', False),
    ],
)
def test_exactly_valid_json_strings_are_accepted(text: bytes, is_valid: bool) -> None:
    assert JSON_STRING.accepts(text) == is_json(text, str) == is_valid


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
        assert JSON_STRING.accepts(text) == is_json(text, str)


@given(st.text(), st.booleans())
def test_any_text_as_a_json_string_is_accepted(text: str, ascii_only: bool) -> None:
    assert JSON_STRING.accepts(json.dumps(text, ensure_ascii=ascii_only).encode())


@given(st.text(alphabet="-+.eE0190 aN\n", max_size=8) | st.binary(max_size=3).map(repr))
@example("NaN")
@example("-Infinity")
@example("\u0661")  # a digit in another script
def test_json_numbers_are_the_numbers_that_pythons_json_accepts(text: str) -> None:
    data = text.encode()
    assert JSON_INTEGER.accepts(data) == is_json(data, int)
    assert JSON_NUMBER.accepts(data) == (is_json(data, int) or is_json(data, float))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_any_number_as_json_is_accepted(real: float, whole: int) -> None:
    assert JSON_NUMBER.accepts(json.dumps(real).encode())
    assert JSON_NUMBER.accepts(json.dumps(whole).encode())
    assert JSON_INTEGER.accepts(json.dumps(whole).encode())
