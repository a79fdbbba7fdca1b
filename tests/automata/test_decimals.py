"""Decimal numbers between bounds, multiples, texts of a length, and what two automata share."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.automata import (
    Dfa,
    any_text,
    compile_regex,
    decimals,
    intersection,
    json_string,
    multiples,
    with_length,
)
from eliza_ffi.errors import InvalidArgumentError

bounds = st.none() | st.integers(-130, 130) | st.sampled_from([-100, -99, -10, -9, 9, 10, 99, 100])
SPELLINGS = [
    sign + whole + fraction
    for sign in ("", "-")
    for whole in ("0", "1", "2", "9", "10", "12", "19", "100")
    for fraction in ("", ".0", ".00", ".1", ".10", ".25", ".99", ".09", ".5", ".9")
]


def accepts(dfa: Dfa | None, text: str) -> bool:
    return dfa is not None and dfa.accepts(text.encode())


def is_between(least: int | None, value: Fraction | int, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


@pytest.mark.slow
@given(bounds, bounds)
def test_whole_numbers_between_any_bounds_are_those_that_count_finds(
    least: int | None, most: int | None
) -> None:
    dfa = decimals(least, most)
    wrong = [
        value
        for value in range(-1250, 1251)
        if accepts(dfa, str(value)) != is_between(least, value, most)
    ]
    assert wrong == []


@pytest.mark.slow
@given(
    st.none() | st.integers(-1300, 1300),
    st.none() | st.integers(-1300, 1300),
)
def test_decimals_between_any_bounds_are_those_that_comparing_finds(
    least: int | None, most: int | None
) -> None:
    dfa = decimals(least, most, n_fraction=2)
    for text in SPELLINGS:
        value = Fraction(text) * 100
        is_legal = is_between(least, value, most) and not (text[0] == "-" and value == 0)
        assert accepts(dfa, text) == is_legal, text


@given(st.integers(-(10**40), 10**40), st.integers(0, 10**40), st.integers(0, 9))
def test_bounds_of_any_length_are_exact(least: int, width: int, n_fraction: int) -> None:
    dfa = decimals(least, least + width, n_fraction)
    unit = 10**n_fraction
    for value in (least - 1, least, least + width // 2, least + width, least + width + 1):
        sign, digits = "-" if value < 0 else "", str(abs(value)).rjust(n_fraction + 1, "0")
        text = f"{sign}{digits[: len(digits) - n_fraction]}"
        if n_fraction:
            text += f".{digits[-n_fraction:]}"
        assert Fraction(text) * unit == value
        assert accepts(dfa, text) == (least <= value <= least + width)


@pytest.mark.parametrize("text", ["", "-", "-0", "00", "01", "+1", "1e3", "1.", ".5", " 1", "1.x"])
def test_a_number_has_one_spelling(text: str) -> None:
    assert not accepts(decimals(None, None), text)
    assert not accepts(decimals(None, None, 3), text)


def test_decimal_places_are_counted() -> None:
    dfa = decimals(None, None, 3)
    assert accepts(dfa, "1.250")
    assert not accepts(dfa, "1.2500")


def test_there_may_be_nothing_between_bounds() -> None:
    assert decimals(5, 4) is None
    assert decimals(-4, -5, 2) is None


@pytest.mark.parametrize("of", [1, 2, 3, 7, 10, 60, 1000])
def test_multiples_are_those_that_dividing_finds(of: int) -> None:
    dfa = multiples(of)
    assert [n for n in range(-2100, 2101) if accepts(dfa, str(n)) != (n % of == 0)] == []
    assert not accepts(dfa, "-0")
    assert not accepts(dfa, "00")


@pytest.mark.parametrize("of", [0, -1, 1001])
def test_multiples_of_few_numbers_are_told_apart(of: int) -> None:
    with pytest.raises(InvalidArgumentError, match="multiples of"):
        multiples(of)


PATTERNS = ("[ab]*", "a*b?", "(?:ab|é)*", "日?a{0,3}", "[^b]{2}")
TEXTS = ["".join(chars) for n in range(5) for chars in itertools.product("abé日", repeat=n)]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PATTERNS, 2)))
def test_an_intersection_has_what_both_have(first: str, second: str) -> None:
    a, b = compile_regex(first), compile_regex(second)
    both = intersection(a, b)
    for text in TEXTS:
        assert accepts(both, text) == (accepts(a, text) and accepts(b, text)), text


def test_an_intersection_may_be_empty_or_too_large() -> None:
    assert intersection(compile_regex("a+"), compile_regex("b+")) is None
    with pytest.raises(InvalidArgumentError, match="more than 5 states"):
        intersection(compile_regex("(?:aa)*"), compile_regex("(?:a{7})*"), 5)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("fewest", "most"), [(0, 0), (0, 2), (1, 1), (2, 3), (2, None), (0, None)])
def test_characters_are_counted_not_bytes(pattern: str, fewest: int, most: int | None) -> None:
    dfa = compile_regex(pattern)
    limited = with_length(dfa, fewest, most)
    if limited is not None:
        limited.validate()
    for text in TEXTS:
        is_legal = accepts(dfa, text) and is_between(fewest, len(text), most)
        assert accepts(limited, text) == is_legal, text


def test_counting_has_a_limit() -> None:
    with pytest.raises(InvalidArgumentError, match="counting 100 characters needs"):
        with_length(json_string(), 0, 100, max_states=500)


def test_any_text_is_any_utf8() -> None:
    rng = random.Random(1)
    for _ in range(300):
        data = bytes(rng.choice((0x41, 0x80, 0xBF, 0xC3, 0xE0, 0xED, 0xF0, 0xF4)) for _ in range(4))
        try:
            data.decode()
        except UnicodeDecodeError:
            assert not any_text().accepts(data)
        else:
            assert any_text().accepts(data)
