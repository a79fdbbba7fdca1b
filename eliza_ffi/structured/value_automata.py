"""Automata over bytes for JSON values with one of several strings after them."""

from __future__ import annotations

import functools
from typing import Any

Edges = list[tuple[int, bytes, int]]
"""A state, the bytes that may come next, and the following state."""


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


_DIGITS, _HEX, _REST = b"0123456789", b"0123456789ABCDEFabcdef", _bytes(0x80, 0xBF)
_INTEGER: Edges = [
    *((0, b"-", 1), (0, b"0", 2), (0, b"123456789", 3), (1, b"0", 2), (1, b"123456789", 3)),
    (3, _DIGITS, 3),
]
_FRACTION: Edges = [(2, b".", 4), (3, b".", 4), (4, _DIGITS, 5), (5, _DIGITS, 5)]
_EXPONENT: Edges = [
    *((2, b"Ee", 6), (3, b"Ee", 6), (5, b"Ee", 6), (6, b"+-", 7), (6, _DIGITS, 8)),
    *((7, _DIGITS, 8), (8, _DIGITS, 8)),
]
# Only text that decodes to valid Unicode: the bytes are UTF-8, and escaped surrogates form pairs of
# a high and a low one.
_STRING_BODY: Edges = [
    (0, b" !" + _bytes(0x23, 0x5B) + _bytes(0x5D, 0x7F), 0),
    *((0, b"\\", 1), (1, b'"\\/bfnrt', 0), (1, b"u", 2)),
    *((2, b"0123456789ABCEFabcef", 3), (3, _HEX, 4), (4, _HEX, 5), (5, _HEX, 0)),
    *((2, b"Dd", 6), (6, b"01234567", 4), (6, b"89ABab", 7), (7, _HEX, 8), (8, _HEX, 9)),
    *((9, b"\\", 10), (10, b"u", 11), (11, b"Dd", 12), (12, b"CDEFcdef", 4)),
    *((0, _bytes(0xC2, 0xDF), 13), (13, _REST, 0), (14, _REST, 13), (15, _REST, 14)),
    *(
        (0, b"\xe0", 16),
        (16, _bytes(0xA0, 0xBF), 13),
        (0, b"\xed", 17),
        (17, _bytes(0x80, 0x9F), 13),
    ),
    (0, _bytes(0xE1, 0xEC) + b"\xee\xef", 14),
    *(
        (0, b"\xf0", 18),
        (18, _bytes(0x90, 0xBF), 14),
        (0, b"\xf4", 19),
        (19, _bytes(0x80, 0x8F), 14),
    ),
    (0, b"\xf1\xf2\xf3", 15),
]
_AUTOMATA: dict[str, tuple[Edges, int, tuple[int, ...]]] = {
    "integer": (_INTEGER, 0, (2, 3)),
    "number": (_INTEGER + _FRACTION + _EXPONENT, 0, (2, 3, 5, 8)),
    "string": ([*_STRING_BODY, (20, b'"', 0), (0, b'"', 21)], 20, (21,)),
    "string-body": (_STRING_BODY, 0, (0,)),
}
"""For each kind of value the edges, the first state, and the states in which the value may end."""


@functools.lru_cache(maxsize=128)
def followed_value(kind: str, follow: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the automaton of a value, and of one of the strings after it if there are any, as
    ``"dfa"`` in a request to the library. No string may begin with a character that could continue
    the value."""
    edges, first, ends = _AUTOMATA[kind]
    moves: dict[Any, dict[int, Any]] = {}
    for state, allowed, target in edges:
        moves.setdefault(state, {}).update(dict.fromkeys(allowed, target))
    accepting: set[Any] = set() if follow else set(ends)
    for text in map(str.encode, follow):
        for n in range(len(text)):
            for before in (text[:n],) if n else ends:
                moves.setdefault(before, {})[text[n]] = text[: n + 1]
        accepting.add(text)
    numbers: dict[Any, int] = {first: 0}
    for state in (found := [first]):  # grows during the loop
        for target in moves.get(state, {}).values():
            if target not in numbers:
                numbers[target] = len(found)
                found.append(target)
    rows = [
        [numbers.get(moves.get(state, {}).get(byte), -1) for byte in range(256)] for state in found
    ]
    columns = list(zip(*rows, strict=True))
    classes = {column: i for i, column in enumerate(dict.fromkeys(columns))}
    return {
        "classes": [classes[column] for column in columns],
        "transitions": [list(row) for row in zip(*classes, strict=True)],
        "accepting": sorted(numbers[state] for state in accepting & numbers.keys()),
    }
