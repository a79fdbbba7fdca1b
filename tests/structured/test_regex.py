"""Regular expressions as automata: compared with Python's matching, and rejected syntax."""

from __future__ import annotations

import doctest
import itertools
import re

import numpy as np
import pytest
from automata_walks import first_difference, shortest_completion
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured import automata
from eliza_ffi.structured.automata import compile_regex, dfa, regex
from eliza_ffi.structured.automata.utf8_ranges import utf8_sequences

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


def matches(pattern: str, text: str) -> bool:
    return compile_regex(pattern).accepts(text.encode())


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("", [""], ["a", "\n"]),
        ("abc", ["abc"], ["", "ab", "abcd", "abd"]),
        ("é漢😀", ["é漢😀"], ["é漢", "e漢😀"]),
        (".", ["a", "é", "漢", "😀", "\r", "\0", "\U0010ffff"], ["", "\n", "ab"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)(?:c|d)", ["ac", "bd"], ["a", "cd"]),
        ("(?P<x>a)(?<y1>b)", ["ab"], ["a"]),
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
        ("[a-]b[-c]d[+--]", ["abcd-", "-b-d,", "abcd+"], ["bbcd-", "abcd."]),
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
        (r"\x41\u00e9\U0001F600\u{1F600}\u{41}", ["Aé😀😀A"], ["x41"]),
        (r"\ud83d\ude00[\ud83d\ude00-\ud83d\ude02]", ["😀😂"], ["😀😃"]),
        (r"\.\*\/\-\ \{\é\_\"", ['.*/- {é_"'], [""]),
        ("a{b}]}{", ["a{b}]}{"], ["ab"]),
        ("{", ["{"], [""]),
        ("a{1, 2}", ["a{1, 2}"], ["a", "aa"]),
        ("^a$", ["a"], ["^a$", "a\n"]),
        ("^a|b$|^^c$$", ["a", "b", "c"], ["^a", ""]),
        ("^$", [""], ["^$"]),
        ("^(?:a|b)$", ["a", "b"], ["ab"]),
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
    ("pattern", "position", "message"),
    [
        (r"(a)\1", 3, r"the backreference \1 is not regular"),
        (r"(?P<x>a)\k<x>", 8, r"the backreference \k is not regular"),
        (r"(?P<x>a)(?P=x)", 8, "the backreference (?P=...) is not regular"),
        ("a(?=b)", 1, "the lookahead (?=...) is not supported"),
        ("(?!a)b", 0, "the negative lookahead (?!...) is not supported"),
        ("a(?<=b)", 1, "the lookbehind (?<=...) is not supported"),
        ("a(?<!b)", 1, "the negative lookbehind (?<!...) is not supported"),
        ("(?>a)", 0, "the atomic group (?>...) is not supported; write (?:...)"),
        ("(a)?(?(1)b|c)", 4, "the conditional (?(...)...) is not supported"),
        ("a(?#b)", 1, "the comment (?#...) is not supported"),
        ("(?P>x)", 0, "the recursion (?P>...) is not regular"),
        ("(?R)", 0, "the recursion (?R) is not regular"),
        ("(?&x)", 0, "the recursion (?&...) is not regular"),
        ("(?i)a", 0, "the flags (?i... are not supported"),
        ("a(?-s:b)", 1, "the flags (?-... are not supported"),
        ("(?|a)", 0, "the group (?|... is not supported"),
        ("(?'x'a)", 0, "the group (?'... is not supported"),
        ("a(?", 1, "the group (?... is not supported"),
        ("(?P<1>a)", 0, "this group has no name that both Python and ECMAScript allow"),
        ("(?<a", 0, "this group has no name that both Python and ECMAScript allow"),
        (r"a\b", 1, r"the word boundary \b is not supported"),
        (r"\B", 0, r"the word boundary \B is not supported"),
        (r"\Aa", 0, r"the anchor \A is not supported; leave it out: the whole te"),
        (r"a\Z", 1, r"the anchor \Z is not supported; leave it out: the whole te"),
        (r"\p{L}", 0, r"the Unicode property \p is not supported; write the characters as a clas"),
        (r"\cA", 0, r"the control escape \c is not supported; write \xHH"),
        (r"\07", 0, r"the octal escape \0 is not supported; write \xHH"),
        (r"[\1]", 1, r"the octal escape \1 is not supported; write \xHH"),
        (r"a\y", 1, r"the escape \y is unknown"),
        (r"\a", 0, r"the escape \a is unknown"),
        ("ab\\", 2, "expected a character after the last \\, got the end of the pattern"),
        ("[\\", 1, "expected a character after the last \\, got the end of the pattern"),
        (r"\x4", 0, r"expected one of \xHH, \uHHHH, \UHHHHHHHH or \u{H...}"),
        (r"\u{}", 0, r"expected one of \xHH, \uHHHH, \UHHHHHHHH or \u{H...}"),
        (r"\U00110000", 0, r"\U00110000 is above U+10FFFF, the last character"),
        (r"a\ud800", 1, "this matches no character: UTF-8 cannot encode surrogates"),
        (r"a[\ud800-\udfff]", 1, "this matches no character: UTF-8 cannot encode surrogates"),
        ("\ud800", 0, "this matches no character: UTF-8 cannot encode surrogates"),
        (r"[^\d\D]", 0, "this matches no character"),
        ("a^b", 1, "the anchor ^ is supported only where the pattern or one of its outermost alt"),
        ("(^a)", 1, "the anchor ^ is supported only where the pattern or one of its outermost alt"),
        ("a$b", 1, "the anchor $ is supported only where the pattern or one of its outermost alt"),
        ("(?:a$)", 4, r"outermost alternatives ends; write \$ for the character"),
        ("^*", 1, "expected something to repeat before *"),
        ("*a", 0, "expected something to repeat before *"),
        ("a|?", 2, "expected something to repeat before ?"),
        ("(+a)", 1, "expected something to repeat before +"),
        ("(?:?a)", 3, "expected something to repeat before ?"),
        ("{2}", 0, "expected something to repeat before {"),
        ("a**", 2, "this quantifier follows another; write (?:...) around the first"),
        ("a{2}{3}", 4, "this quantifier follows another; write (?:...) around the first"),
        ("a???", 3, "this quantifier follows another; write (?:...) around the first"),
        ("a*+", 1, "possessive quantifiers are not supported; leave out the last +"),
        ("a{3,2}", 1, "{3,2}: the first number is greater than the second"),
        ("a{,2}", 1, "Python and ECMAScript disagree about {,; write {0, or \\{,"),
        ("a{65536}", 1, "{65536} is more than 65535 repetitions"),
        ("a{1,100000}", 1, "{1,100000} is more than 65535 repetitions"),
        ("a{" + "9" * 5000 + "}", 1, "... is more than 65535 repetitions"),
        ("a(b", 1, "this group is not closed"),
        ("a)b", 1, "this ) has no matching ("),
        ("a[b", 1, "this class is not closed"),
        ("[a-", 0, "this class is not closed"),
        ("[]a]", 1, "] as the first character of a class; write \\]"),
        ("[^]", 2, "] as the first character of a class; write \\]"),
        ("x[b-a]", 2, "the range b-a is in descending order"),
        (r"[a-\d]", 1, r"a range cannot begin or end with a set, as in a-\d; write \- for"),
        (r"[\w-z]", 1, r"a range cannot begin or end with a set, as in \w-z; write \- for"),
        ("[[:alpha:]]", 1, "the POSIX class [:...:] is not supported; write \\[ for the character"),
        ("a" * 262_145, 262_144, "expected at most 262144 characters, got 262145"),
        ("(a" * 51 + ")" * 51, 100, "more than 50 groups are nested here"),
        ("(" * 100_000, 50, "more than 50 groups are nested here"),
        ("a(?:b{1000}){1000}", 12, "expected at most 262144 parts, got 1001001 after expanding"),
        (".{60000}", 1, "expected at most 262144 parts, got 1680001 after expanding"),
        ("(){65535}" * 5, 0, "expected at most 262144 parts, got 327681"),
    ],
)
def test_the_error_for_unsupported_syntax_names_it_and_its_position(
    pattern: str, position: int, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        compile_regex(pattern)
    text = str(caught.value)
    assert text.startswith("cannot compile the pattern ")
    assert f", position {position}: " in text
    assert message in text
    assert len(text) < 400


def test_a_pattern_must_be_a_string() -> None:
    with pytest.raises(InvalidArgumentError, match="pattern must be a string, got bytes"):
        compile_regex(b"a")  # type: ignore[arg-type]


def test_an_exponential_pattern_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "MOST_STATES", 1000)
    assert compile_regex("a{999}").n_states == 1000
    message = "pattern '(a|b)*a(a|b){100}': the deterministic automaton needs more than 1000 states"
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        compile_regex("(a|b)*a(a|b){100}")


@pytest.mark.slow
def test_a_pattern_with_large_sets_of_states_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="takes more than 8388608 steps"):
        compile_regex("(?:a?){8000}")


def test_fifty_nested_repeated_groups_are_accepted() -> None:
    assert compile_regex("(?:a" * 50 + ")+" * 50).n_states == 51


# Comparison with Python

ALPHABET = "ab-_0 \né漢😀\ud7ff\ue000\U0010ffff"
CLASS_CHARACTERS = ["a", "b", "0", "_", "é", "漢", "😀", r"\-", r"\]", r"\n", r"\u00e8", r"\x61"]

literals = st.sampled_from(["a", "b", "0", "_", " ", "-", "é", "漢", "😀", r"\n", r"\-", r"\xe9"])
sets = st.sampled_from([r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"])
class_ranges = st.sampled_from(["a-z", "0-a", "a-é", "é-漢", r"\x00-\x7f", r"漢-\U0010ffff", "à-ü"])
class_parts = st.one_of(st.sampled_from(CLASS_CHARACTERS), sets, class_ranges)
classes = st.builds(
    "[{}{}]".format, st.sampled_from(["", "^"]), st.lists(class_parts, min_size=1).map("".join)
)
counts = {
    "*": (0, 2),
    "+": (1, 3),
    "?": (0, 1),
    "{2}": (2,),
    "{1,}": (1, 3),
    "{1,3}": (1, 2, 3),
    "{0}": (0,),
}
quantifiers = st.sampled_from([(sign, times) for sign in counts for times in counts[sign]])

# A pattern and a string that it matches.
Example = tuple[str, str]


@st.composite
def atoms(draw: st.DrawFn) -> Example:
    pattern = draw(st.one_of(literals, sets, st.just("."), classes))
    matched = [character for character in ALPHABET if re.match(pattern, character, re.ASCII)]
    assume(matched)
    return pattern, draw(st.sampled_from(matched))


def concatenated(examples: list[Example]) -> Example:
    return "".join(pattern for pattern, _ in examples), "".join(text for _, text in examples)


def either(examples: list[Example], chosen: int) -> Example:
    alternatives = "|".join(pattern for pattern, _ in examples)
    return f"(?:{alternatives})", examples[chosen % len(examples)][1]


def repeated(example: Example, quantifier: tuple[str, int], lazy: str) -> Example:
    pattern, text = example
    sign, times = quantifier
    return f"(?:{pattern}){sign}{lazy}", text * times


def larger(examples: st.SearchStrategy[Example]) -> st.SearchStrategy[Example]:
    return st.one_of(
        st.lists(examples, max_size=4).map(concatenated),
        st.builds(either, st.lists(examples, min_size=1, max_size=4), st.integers(0, 3)),
        st.builds(repeated, examples, quantifiers, st.sampled_from(["", "?"])),
        examples.map(lambda example: (f"({example[0]}|)", example[1])),
    )


matching = st.recursive(atoms(), larger, max_leaves=10)
patterns = matching.map(lambda example: example[0])
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


@pytest.mark.slow
@given(matching)
def test_a_string_generated_with_its_pattern_is_accepted(example: Example) -> None:
    pattern, text = example
    assert re.fullmatch(pattern, text, re.ASCII)
    assert compile_regex(pattern).accepts(text.encode())


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


def test_all_short_strings_match_as_in_python() -> None:
    pattern = "(?:a(?:b|é)*|[^a]{2,3}|b?)a?"
    automaton = compile_regex(pattern)
    for size in range(6):
        for text in map("".join, itertools.product("abé", repeat=size)):
            assert automaton.accepts(text.encode()) == bool(re.fullmatch(pattern, text)), text


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


@given(st.integers(0, 0x10FFFF), st.integers(0, 5000))
@example(0x7F, 1)
@example(0x7FE, 2)
@example(0xFFFE, 3)
def test_sequences_spell_exactly_the_range_in_order(first: int, length: int) -> None:
    last = min(first + length, 0x10FFFF)
    assume(last < 0xD800 or first > 0xDFFF)
    spelt = [
        bytes(data)
        for sequence in utf8_sequences(first, last)
        for data in itertools.product(*(range(low, high + 1) for low, high in sequence))
    ]
    assert spelt == [chr(code_point).encode() for code_point in range(first, last + 1)]


def test_a_compiled_pattern_converts_to_the_librarys_format() -> None:
    compiled = compile_regex("[ab]+").to_dict()
    assert compiled["transitions"] == [[-1, 1], [-1, 1]]
    assert compiled["accepting"] == [1]
    assert [byte for byte in range(256) if compiled["classes"][byte]] == [0x61, 0x62]


def test_the_docstring_examples_are_correct() -> None:
    for module in (automata, dfa, regex):
        failed, attempted = doctest.testmod(module)
        assert attempted
        assert not failed
