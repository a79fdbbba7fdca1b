"""How many columns of a terminal a text takes, and texts cut and wrapped by that."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.measuring.terminal_text import pad, printable, shorten, text_width, wrap

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
GERMANY = "\U0001f1e9\U0001f1ea"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
THUMB = "\U0001f44d\U0001f3fd"
HEART = "\u2764\ufe0f"

MIXED = st.text(
    st.sampled_from(["a", " ", "é", "日", "\u0301", "क", "\u200d", "\ufe0f", "1", "\u1161"])
    | st.sampled_from(
        "\U0001f469\U0001f467\U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea\u2764\u231a\ufe0e"
    )
)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 0),
        ("plain", 5),
        ("Grüße", 5),
        ("e\u0301te\u0301", 3),  # marks behind their letters
        ("你好", 4),
        ("ﾊﾛｰ", 3),  # narrow forms
        ("\uff21\uff22", 4),  # wide forms
        ("\u3000", 2),
        ("한국", 4),
        ("\u1112\u1161\u11ab", 2),  # a syllable written as its three letters
        ("\U0001f389", 2),
        (THUMB, 2),
        ("\u261d\U0001f3fd", 2),  # a narrow hand becomes an emoji by its skin tone
        (FAMILY, 2),
        (HEART, 2),
        ("\u2764", 1),
        (f"{HEART}\u200d\U0001f525", 2),
        ("\U0001f469\u200d\u2695\ufe0f", 2),
        ("1\ufe0f\u20e3", 2),
        ("\u231a\ufe0e", 1),  # a watch that is to be drawn as text
        ("\u2139\ufe0f", 2),
        (GERMANY, 2),
        (GERMANY * 2, 4),
        (ENGLAND, 2),
        ("a\U0001f3fd", 3),  # no skin for a letter
        ("क\u094d\u200dष", 2),  # a joiner between letters joins no emoji
        ("कि", 2),
        ("a\ufe0f", 1),
    ],
)
def test_a_text_takes_the_columns_of_what_is_drawn(text: str, width: int) -> None:
    assert text_width(text) == width
    assert text_width(f"x{text} y") == width + 3


def test_characters_are_as_wide_as_wcwidth_says() -> None:
    wcwidth = pytest.importorskip("wcwidth")
    differing = set()
    for code in range(0x20, 0x110000):
        character = chr(code)
        if printable(character) != character or unicodedata.category(character)[0] == "M":
            continue
        if text_width(character) != wcwidth.wcswidth(character):
            differing.add(code)
    # Symbols that were made wide by a Unicode newer than Python's own, and fillers of Hangul.
    later = {*range(0x2630, 0x2638), *range(0x268A, 0x2690), *range(0x4DC0, 0x4E00)}
    later |= {*range(0x1D300, 0x1D357), *range(0x1D360, 0x1D379), 0x3164, 0xFFA0}
    assert differing <= later


def test_sequences_are_as_wide_as_wcwidth_says() -> None:
    wcwidth = pytest.importorskip("wcwidth")
    assigned = [chr(code) for code in range(0x20, 0x20000) if chr(code).isprintable()]
    made_emoji = [
        character
        for character in assigned
        if wcwidth.wcswidth(character) == 1 and wcwidth.wcswidth(character + "\ufe0f") == 2
    ]
    assert len(made_emoji) > 100
    assert [each for each in made_emoji if text_width(each + "\ufe0f") != 2] == []
    for text in (
        FAMILY,
        GERMANY,
        ENGLAND,
        THUMB,
        HEART,
        "1\ufe0f\u20e3",
        "\u1112\u1161\u11ab",
        "कि",
    ):
        assert text_width(text) == wcwidth.wcswidth(text)
    # A mark behind a letter; the six are drawn beside it in some fonts, and below it in others.
    marks = [character for character in assigned if unicodedata.category(character)[0] == "M"]
    differing = [m for m in marks if text_width("a" + m) != wcwidth.wcswidth("a" + m)]
    assert len(marks) > 2000 and len(differing) < 12


def test_control_characters_are_spelled_out_and_what_joins_or_spaces_is_not() -> None:
    assert printable("\x1b[2Jname\x07\r\u200f é 日本") == "\\x1b[2Jname\\x07\\r\\u200f é 日本"
    for text in (FAMILY, ENGLAND, "two\nlines", "a\u3000b\u00a0c", "می\u200cشود"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abc", 3, "abc"),
        ("abcdef", 5, "ab..."),
        ("a\n b", 9, "a b"),
        ("abcdef", 2, "..."),
        ("你好你好", 8, "你好你好"),
        ("你好你好", 7, "你好..."),
        ("你好你好", 6, "你..."),
        (f"{FAMILY}{FAMILY}{FAMILY}", 5, f"{FAMILY}..."),
        (f"{HEART}e\u0301{GERMANY}{THUMB}", 6, f"{HEART}e\u0301..."),
    ],
)
def test_a_text_is_cut_between_what_is_drawn(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


def test_a_text_is_wrapped_between_words_and_within_one_that_does_not_fit() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("你好你好你好", 5) == ["你好", "你好", "你好"]
    assert wrap(f"a {FAMILY * 3}", 4) == ["a", FAMILY * 2, FAMILY]
    assert wrap("one\n\ntwo", 7) == ["one", "", "two"]
    assert wrap("one two three", None) == ["one two three"]
    assert wrap("a किि", 2) == ["a", "किि"]  # wider than the line


def test_a_text_is_filled_to_a_width() -> None:
    assert pad("你", 4) == "你  "
    assert pad("你", 4, right=True) == "  你"
    assert pad("long", 2) == "long"


@given(MIXED, st.integers(2, 12))
def test_nothing_is_wider_than_asked_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert text_width(shorten(text, width + 3)) <= width + 3
