"""Parse escapes and character classes of regular expressions."""

from __future__ import annotations

import re

from .regex_cursor import Cursor, shortened
from .regex_tree import Characters
from .utf8_ranges import LAST_CODE_POINT, CodePoints, complement, one, union, utf8_of

__all__ = ["NOT_LINE_FEED", "characters", "read_class", "read_escape"]

_DIGIT: CodePoints = ((0x30, 0x39),)
_WORD: CodePoints = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: CodePoints = ((0x09, 0x0D), (0x20, 0x20))

_ESCAPES: dict[str, CodePoints] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _SPACE,
    "D": complement(_DIGIT),
    "W": complement(_WORD),
    "S": complement(_SPACE),
    "n": one(0x0A),
    "r": one(0x0D),
    "t": one(0x09),
    "f": one(0x0C),
    "v": one(0x0B),
}
NOT_LINE_FEED = complement(one(0x0A))

_NUMBERED = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,8})\})"
)
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_UNSUPPORTED_ESCAPES = {
    "b": r"the word boundary \b is not supported",
    "B": r"the word boundary \B is not supported",
    "A": r"the anchor \A is not supported; leave it out: the whole text is matched anyway",
    "Z": r"the anchor \Z is not supported; leave it out: the whole text is matched anyway",
    "z": r"the anchor \z is not supported; leave it out: the whole text is matched anyway",
    "G": r"the anchor \G is not supported",
    "k": r"the backreference \k is not regular",
    "g": r"the backreference \g is not regular",
    "p": r"the Unicode property \p is not supported; write the characters as a class",
    "P": r"the Unicode property \P is not supported; write the characters as a class",
    "c": r"the control escape \c is not supported; write \xHH",
}


def characters(cursor: Cursor, ranges: CodePoints, at: int) -> Characters:
    """Return the node for a set of characters at a position of the pattern."""
    sequences = utf8_of(ranges)
    if not sequences:
        reason = ": UTF-8 cannot encode surrogates" if ranges else ""
        raise cursor.error(at, f"this matches no character{reason}")
    return Characters(sequences)


def read_escape(cursor: Cursor) -> Characters:
    """Read an escape outside a class, beginning at its backslash."""
    at = cursor.at
    return characters(cursor, _escaped(cursor), at)


def read_class(cursor: Cursor) -> Characters:
    """Read a character class, from [ to ]."""
    at = cursor.at
    cursor.at += 1
    negated = cursor.skip("^")
    if cursor.next() == "]":
        raise cursor.error(
            cursor.at,
            "Python and ECMAScript disagree about ] as the first character of a class; write \\]",
        )
    ranges: list[tuple[int, int]] = []
    while not cursor.skip("]"):
        ranges += _class_part(cursor, at)
    united = union(ranges)
    return characters(cursor, complement(united) if negated else united, at)


def _is_one(ranges: CodePoints) -> bool:
    return ranges[0][0] == ranges[-1][1]


def _class_part(cursor: Cursor, class_at: int) -> CodePoints:
    """Read a set, a character, or a range of characters."""
    at = cursor.at
    first = _class_character(cursor, class_at)
    if cursor.next() != "-" or cursor.starts("-]"):
        return first
    cursor.at += 1
    last = _class_character(cursor, class_at)
    shown = shortened(cursor.pattern[at : cursor.at])
    if not (_is_one(first) and _is_one(last)):
        raise cursor.error(
            at, f"a range cannot begin or end with a set, as in {shown}; write \\- for the dash"
        )
    if last < first:
        raise cursor.error(at, f"the range {shown} is in descending order")
    return ((first[0][0], last[0][0]),)


def _class_character(cursor: Cursor, class_at: int) -> CodePoints:
    character = cursor.next()
    if not character:
        raise cursor.error(class_at, "this class is not closed")
    if character == "\\":
        return _escaped(cursor, in_class=True)
    if cursor.starts("[:"):
        raise cursor.error(
            cursor.at, "the POSIX class [:...:] is not supported; write \\[ for the character"
        )
    cursor.at += 1
    return one(ord(character))


def _escaped(cursor: Cursor, in_class: bool = False) -> CodePoints:
    at = cursor.at
    letter = cursor.pattern[at + 1 : at + 2]
    if not letter:
        raise cursor.error(at, "expected a character after the last \\, got the end of the pattern")
    if letter in "xuU":
        return one(_numbered(cursor))
    cursor.at += 2
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter == "b" and in_class:
        return one(0x08)
    if letter == "0" and not cursor.next().isdecimal():
        return one(0x00)
    if letter in _UNSUPPORTED_ESCAPES:
        raise cursor.error(at, _UNSUPPORTED_ESCAPES[letter])
    if letter in "0123456789":
        if letter == "0" or in_class:
            raise cursor.error(at, f"the octal escape \\{letter} is not supported; write \\xHH")
        raise cursor.error(at, f"the backreference \\{letter} is not regular")
    if letter.isascii() and letter.isalpha():
        raise cursor.error(at, f"the escape \\{letter} is unknown")
    return one(ord(letter))


def _numbered(cursor: Cursor) -> int:
    r"""Read \xHH, \uHHHH, \UHHHHHHHH or \u{H...}."""
    at = cursor.at
    found = cursor.match(_NUMBERED)
    if found is None:
        forms = "\\xHH, \\uHHHH, \\UHHHHHHHH or \\u{H...}"
        raise cursor.error(at, f"expected one of {forms}")
    cursor.at = found.end()
    code_point = int(found[found.lastindex or 0], 16)
    low = cursor.match(_LOW_SURROGATE)
    if found[2] and 0xD800 <= code_point <= 0xDBFF and low is not None:
        cursor.at = low.end()
        return 0x10000 + ((code_point - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
    if code_point > LAST_CODE_POINT:
        raise cursor.error(at, f"{found[0]} is above U+10FFFF, the last character")
    return code_point
