"""Recognize the free values of a skeleton: patterns, limits, and where a value may end.

The native recognizers have the same limits, so any text that these functions accept could have been
written by the library.
"""

from __future__ import annotations

from collections.abc import Iterator

from .automata import json_number, json_string

__all__ = ["JSON_DEPTH", "MOST_SPACES", "value_ends"]

JSON_DEPTH = 16
"""The deepest nesting of arrays and objects in a ``free-json`` value."""

MOST_SPACES = 20
"""The maximum number of consecutive white-space characters inside a ``free-json`` value.

White space before and after the value is not allowed."""


def value_ends(data: bytes, start: int, depth: int) -> Iterator[int]:
    """Yield the offsets at which a JSON value with at most `depth` levels of nesting may end."""
    first = data[start : start + 1]
    if first in (b"{", b"["):
        if depth > 0:
            yield from _container_ends(data, start, depth)
    elif first == b'"':
        yield from json_string().ends(data, start)
    else:
        for word in (b"true", b"false", b"null"):
            if data.startswith(word, start):
                yield start + len(word)
        yield from json_number().ends(data, start)


def _container_ends(data: bytes, start: int, depth: int) -> Iterator[int]:
    """Yield the offset at which an array or object ends: at most one offset."""
    is_object = data[start : start + 1] == b"{"
    close = b"}" if is_object else b"]"
    position = _after_spaces(data, start + 1)
    if data.startswith(close, position):
        yield position + 1
        return
    while True:
        if is_object:
            name_end = next(json_string().ends(data, position), None)
            if name_end is None:
                return
            position = _after_spaces(data, name_end)
            if not data.startswith(b":", position):
                return
            position = _after_spaces(data, position + 1)
        # A number has several possible ends. Only the last can precede a comma or a bracket.
        ends = list(value_ends(data, position, depth - 1))
        if not ends:
            return
        position = _after_spaces(data, ends[-1])
        if data.startswith(close, position):
            yield position + 1
            return
        if not data.startswith(b",", position):
            return
        position = _after_spaces(data, position + 1)


def _after_spaces(data: bytes, position: int) -> int:
    last = min(position + MOST_SPACES, len(data))
    while position < last and data[position] in b" \t\n\r":
        position += 1
    return position
