"""Incremental JSON reader: reports each value as soon as it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ..errors import InvalidArgumentError
from .json_text import JsonScanner, read_json

Path: TypeAlias = "tuple[str | int, ...]"
"""The keys and array indices that lead to a value, outermost first."""

_SPACE_AND_SEPARATORS = " \t\r\n,:"
_NUMBER_BEGINNINGS = "-0123456789"


class JsonReader:
    """Reads a JSON text piece by piece, in time proportional to its length.

    `value` has the complete parts of the text's value; None until it is complete, or an object or
    array has begun. A string is complete at its closing quote, a number when another character
    follows.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self._text = ""
        self._at = 0  # everything before this index has been read
        self._scanner = JsonScanner()
        self._scalar: list[str] = []  # the characters of an unfinished string, number or name
        self._open: list[tuple[dict[str, Any] | list[Any], Path]] = []
        self._key: str | None = None

    def push(self, text: str) -> Iterator[tuple[Path, Any]]:
        """Add text, and yield the values that become complete with their paths, in order, reading
        only as far as the last yielded value. Raise InvalidArgumentError if the text cannot be
        JSON."""
        self._text, self._at = self._text[self._at :] + text, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._scalar and not self._scanner.in_string and char in " \t\r\n,:[]{}":
                yield from self._end_scalar()
            self._at += 1
            yield from self._read(char)

    def finish(self) -> Iterator[tuple[Path, Any]]:
        """End the text. If it ends with a number, yield the number, which is now complete."""
        if self._scalar and self._scalar[0] in _NUMBER_BEGINNINGS:
            yield from self.push(" ")

    def _read(self, char: str) -> Iterator[tuple[Path, Any]]:
        was_in_string = self._scanner.in_string
        self._scanner.push(char)
        if was_in_string:
            self._scalar.append(char)
            if not self._scanner.in_string:
                yield from self._end_scalar()
        elif char in "{[":
            inside: dict[str, Any] | list[Any] = {} if char == "{" else []
            self._open.append((inside, self._store(inside)))
        elif char in "}]":
            if not self._open:
                raise InvalidArgumentError(f"not JSON: no array or object is open before {char!r}")
            ended, path = self._open.pop()
            yield path, ended
        elif char not in _SPACE_AND_SEPARATORS:
            if not self._scalar and char not in f'"tfn{_NUMBER_BEGINNINGS}':
                raise InvalidArgumentError(f"not JSON: {char!r}")
            self._scalar.append(char)
            if char in "el" and "".join(self._scalar) in ("true", "false", "null"):
                yield from self._end_scalar()

    def _end_scalar(self) -> Iterator[tuple[Path, Any]]:
        value = read_json("".join(self._scalar))
        self._scalar.clear()
        if self._open and isinstance(self._open[-1][0], dict) and self._key is None:
            if not isinstance(value, str):
                raise InvalidArgumentError(f"not JSON: expected a string as a key, got {value!r}")
            self._key = value
        else:
            yield self._store(value), value

    def _store(self, value: Any) -> Path:
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


def copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: copied(each) for key, each in data.items()}
    return [copied(each) for each in data] if isinstance(data, list) else data
