"""JSON read while it is written: what is certain so far, and what has just become so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from ..checks import check_text
from ..errors import InvalidArgumentError
from .json_text import read_json

__all__ = ["JsonReader", "Path", "copied"]

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys of objects and places in arrays, from the outside in."""

_SCALAR = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*(?=[^0-9.eE+-])|true|false|null', re.DOTALL
)
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_BEGINNINGS = frozenset('"-0123456789tfn')


class JsonReader:
    """A JSON text as it comes, each character of which is read a fixed number of times.

    A string is known when its quote has come, a number when it is seen to go no further. Objects
    and arrays hold what is known of them.

    Attributes
    ----------
    value : Any
        What is certain; None as long as `has_value` is false.
    has_value : bool
    open_path : tuple of str or int
        Where the innermost object or array is that has begun and not ended; of no use when
        `is_open` is false.

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
        self.has_value = False
        self._text = ""
        self._at = 0  # what is before this place in the text has been read
        self._string: list[str] = []  # the pieces of a string that has not ended
        self._is_escaped = False  # whether these end with a backslash that escapes what follows
        self._open: list[tuple[dict[str, Any] | list[Any], Path]] = []
        self._key: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether an object or array has begun and not ended."""
        return bool(self._open)

    @property
    def open_path(self) -> Path:
        """Where the innermost of these is."""
        return self._open[-1][1] if self._open else ()

    def push(self, text: str) -> Iterator[tuple[Path, Any]]:
        """Take some more text, and yield what becomes known, with its place, in order.

        It is read no further than what has been yielded: what is certain is then as of that.

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
            if n_read == 0:  # the rest may go on
                return
            self._at += n_read
            self._skip_space()
            if found is not None:
                yield found

    def finish(self) -> Iterator[tuple[Path, Any]]:
        """Take note that nothing follows: a number at the very end is known now."""
        if _NUMBER.fullmatch(self._text, self._at):
            yield from self.push(" ")

    def _skip_space(self) -> None:
        self._at = _end(_SPACE, self._text, self._at)

    def _end_of_string(self, text: str) -> str:
        """Add to a string that has not ended; return it with what follows, empty if it goes on."""
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
        """Read one sign or scalar: its length, 0 where it may go on, and what is known by it."""
        text, at = self._text, self._at
        sign = text[at]
        if sign in "{[":
            inside: dict[str, Any] | list[Any] = {} if sign == "{" else []
            self._open.append((inside, self._place(inside)))
            return 1, None
        if sign in "}]":
            if not self._open:
                raise InvalidArgumentError(f"not JSON: {text[at : at + 20]!r} ends nothing")
            ended, path = self._open.pop()
            return 1, (path, ended)
        if sign in ",:":
            return 1, None
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            if sign not in _BEGINNINGS:
                raise InvalidArgumentError(f"not JSON: {text[at : at + 20]!r}")
            if sign == '"':
                self._string = [text[at:]]
                self._is_escaped = _end(_IN_STRING, text, at + 1) < len(text)
                self._text, self._at = "", 0
            return 0, None
        value = read_json(scalar.group())
        length = scalar.end() - at
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            if not isinstance(value, str):
                raise InvalidArgumentError(f"not JSON: {value!r} is no key of an object")
            self._key = value
            return length, None
        return length, (self._place(value), value)

    def _place(self, value: Any) -> Path:
        """Put a value where it belongs, and return where that is."""
        if not self._open:
            self.value, self.has_value = value, True
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
    """Return where a pattern that also matches nothing ends."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def copied(data: Any) -> Any:
    """Return JSON data that does not change when more of it comes."""
    if isinstance(data, dict):
        return {key: copied(each) for key, each in data.items()}
    return [copied(each) for each in data] if isinstance(data, list) else data
