"""JSON read while it is written: what is certain so far, and what has just become so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from ..checks import wrong
from ..errors import InvalidArgumentError
from ..skeleton.json_text import read_json

__all__ = ["JsonReader", "Path", "copied"]

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys of objects and places in arrays, from the outside in."""

_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*(?=[^0-9.eE+-])|true|false|null')
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_BEGINNINGS = frozenset('"-0123456789tfn')


class JsonReader:
    """A JSON text as it comes.

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
        self._rest = ""
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
        try:
            self._rest += text
        except TypeError:
            raise wrong("text", "a string", text) from None
        self._skip_space()
        while self._rest:
            n_read, found = self._step(self._rest)
            if n_read == 0:  # the rest may go on
                return
            self._rest = self._rest[n_read:]
            self._skip_space()
            if found is not None:
                yield found

    def finish(self) -> Iterator[tuple[Path, Any]]:
        """Take note that nothing follows: a number at the very end is known now."""
        if _NUMBER.fullmatch(self._rest):
            yield from self.push(" ")

    def _skip_space(self) -> None:
        self._rest = self._rest.lstrip(" \t\r\n")

    def _step(self, text: str) -> tuple[int, tuple[Path, Any] | None]:
        """Read one sign or scalar: its length, 0 where it may go on, and what is known by it."""
        sign = text[0]
        if sign in "{[":
            inside: dict[str, Any] | list[Any] = {} if sign == "{" else []
            self._open.append((inside, self._place(inside)))
            return 1, None
        if sign in "}]":
            if not self._open:
                raise InvalidArgumentError(f"not JSON: {text[:20]!r} ends nothing")
            ended, path = self._open.pop()
            return 1, (path, ended)
        if sign in ",:":
            return 1, None
        scalar = _SCALAR.match(text)
        if scalar is None:
            if sign not in _BEGINNINGS:
                raise InvalidArgumentError(f"not JSON: {text[:20]!r}")
            return 0, None
        value = read_json(scalar.group())
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            if not isinstance(value, str):
                raise InvalidArgumentError(f"not JSON: {value!r} is no key of an object")
            self._key = value
            return scalar.end(), None
        return scalar.end(), (self._place(value), value)

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


def copied(data: Any) -> Any:
    """Return JSON data that does not change when more of it comes."""
    if isinstance(data, dict):
        return {key: copied(each) for key, each in data.items()}
    return [copied(each) for each in data] if isinstance(data, list) else data
