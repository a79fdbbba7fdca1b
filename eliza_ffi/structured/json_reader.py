"""Incremental JSON reader: reports each value as soon as it is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from ..checks import check_text
from ..errors import InvalidArgumentError
from .json_text import read_json

Path: TypeAlias = "tuple[str | int, ...]"
"""The keys and array indices that lead to a value, outermost first."""

_SCALAR = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*(?=[^0-9.eE+-])|true|false|null', re.DOTALL
)
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_BEGINNINGS = frozenset('"-0123456789tfn')


class JsonReader:
    """Reads a JSON text piece by piece, in time proportional to its length.

    A string is complete at its closing quote. A number is complete when a character follows that
    cannot be part of it. Open objects and arrays contain their complete parts.

    Attributes
    ----------
    value : Any
        The complete parts of the text's value; None until it is complete, or an object or array
        has begun.

    Examples
    --------
    >>> reader = JsonReader()
    >>> list(reader.push('{"a":[1,2'))
    [(('a', 0), 1)]
    >>> reader.value
    {'a': [1]}
    >>> list(reader.push('3],"b"'))
    [(('a', 1), 23), (('a',), [1, 23])]
    """

    def __init__(self) -> None:
        self.value: Any = None
        self._text = ""
        self._at = 0  # everything before this index has been read
        self._string: list[str] = []  # the pieces of an unfinished string
        self._is_escaped = False  # whether the pieces end with the backslash of an escape
        self._open: list[tuple[dict[str, Any] | list[Any], Path]] = []
        self._key: str | None = None

    def push(self, text: str) -> Iterator[tuple[Path, Any]]:
        """Add text, and yield the values that become complete with their paths, in order.

        The text is read only as far as the last yielded value, so that `value` matches it.

        Raises
        ------
        InvalidArgumentError
            If the text cannot be JSON.
        """
        check_text("text", text)
        if self._string:
            text = self._end_of_string(text)
        self._text, self._at = self._text[self._at :] + text, 0
        self._skip_space()
        while self._at < len(self._text):
            n_read, found = self._step()
            if n_read == 0:  # the last scalar may be incomplete
                return
            self._at += n_read
            self._skip_space()
            if found is not None:
                yield found

    def finish(self) -> Iterator[tuple[Path, Any]]:
        """End the text. If it ends with a number, yield the number, which is now complete."""
        if _NUMBER.fullmatch(self._text, self._at):
            yield from self.push(" ")

    def _skip_space(self) -> None:
        self._at = _end(_SPACE, self._text, self._at)

    def _end_of_string(self, text: str) -> str:
        """Append text to an unfinished string. Return the whole string and the text after it.

        The result is "" if the string does not end in this text.
        """
        if not text:
            return ""
        end = _end(_IN_STRING, text, 1 if self._is_escaped else 0)
        self._string.append(text)
        if text[end : end + 1] != '"':
            self._is_escaped = end < len(text)
            return ""
        whole = "".join(self._string)
        self._string, self._is_escaped = [], False
        return whole

    def _step(self) -> tuple[int, tuple[Path, Any] | None]:
        """Read one punctuation character or scalar.

        Return the number of characters read, which is 0 if the scalar may be incomplete, and the
        path and the value of the part that is now complete.
        """
        text, at = self._text, self._at
        first = text[at]
        if first in "{[":
            inside: dict[str, Any] | list[Any] = {} if first == "{" else []
            self._open.append((inside, self._place(inside)))
            return 1, None
        if first in "}]":
            if not self._open:
                raise InvalidArgumentError(
                    f"not JSON: no array or object is open before {text[at : at + 20]!r}"
                )
            ended, path = self._open.pop()
            return 1, (path, ended)
        if first in ",:":
            return 1, None
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            if first not in _BEGINNINGS:
                raise InvalidArgumentError(f"not JSON: {text[at : at + 20]!r}")
            if first == '"':
                self._string = [text[at:]]
                self._is_escaped = _end(_IN_STRING, text, at + 1) < len(text)
                self._text, self._at = "", 0
            return 0, None
        value = read_json(scalar.group())
        length = scalar.end() - at
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            if not isinstance(value, str):
                raise InvalidArgumentError(f"not JSON: expected a string as a key, got {value!r}")
            self._key = value
            return length, None
        return length, (self._place(value), value)

    def _place(self, value: Any) -> Path:
        """Store a value at its place, and return its path."""
        if not self._open:
            self.value = value
            return ()
        inside, path = self._open[-1]
        if isinstance(inside, list):
            inside.append(value)
            return (*path, len(inside) - 1)
        if self._key is None:
            raise InvalidArgumentError("not JSON: a value in an object has no key")
        key, self._key = self._key, None
        inside[key] = value
        return (*path, key)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a match at `at`, or `at` if there is no match."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def copied(data: Any) -> Any:
    """Return a deep copy of JSON data."""
    if isinstance(data, dict):
        return {key: copied(each) for key, each in data.items()}
    return [copied(each) for each in data] if isinstance(data, list) else data
