"""JSON as text: writing values, reading them back, and whether a text stops inside a string."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..checks import check_kind
from ..errors import InvalidArgumentError

__all__ = [
    "LONGEST_INTEGER",
    "JsonPosition",
    "check_unicode",
    "json_text",
    "read_json",
    "string_body",
    "string_from_body",
]

LONGEST_INTEGER = 4000
"""Digits above which a whole number is read as a float, as JavaScript does with all: Python's own
``int`` refuses more than 4,300."""


def json_text(value: Any) -> str:
    """Return a value as JSON without white space, other than ASCII characters as they are.

    Raises
    ------
    InvalidArgumentError
        If JSON cannot hold it, or if it has a lone surrogate, which is no character.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not a JSON value: {error}") from None
    check_unicode(text, "the value")
    return text


def string_body(text: str) -> str:
    """Return a text as it stands between the quotes of a JSON string."""
    return json_text(text)[1:-1]


def string_from_body(body: str) -> str:
    """Return what :func:`string_body` was given.

    Raises
    ------
    InvalidArgumentError
        If this is not the inside of one JSON string.
    """
    value = read_json(f'"{body}"')
    if not isinstance(value, str):
        raise InvalidArgumentError(f"not the inside of a JSON string: {body!r}")
    return value


def read_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    InvalidArgumentError
        If it is not JSON; unlike in Python's reader, NaN and infinities are not.
    """
    check_kind("text", text, (str, bytes), "a string")
    try:
        return json.loads(text, parse_int=_integer, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not JSON: {error}") from None


def check_unicode(text: str, what: str) -> None:
    """Check that a text can be written as UTF-8.

    Raises
    ------
    InvalidArgumentError
        If it has a lone surrogate; the message names `what` it is.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{what} has a lone surrogate, U+{ord(text[error.start]):04X}, at character "
            f"{error.start}: {text!r}"
        ) from None


@dataclass(frozen=True)
class JsonPosition:
    """Where a JSON text stops.

    Attributes
    ----------
    in_string : bool
        Inside a string: the next character is part of it, or the quote that ends it.
    escape : str
        An escape that has begun and not ended, such as ``"\\\\u00"``; mostly empty.
    """

    in_string: bool = False
    escape: str = ""

    def after(self, text: str) -> JsonPosition:
        """Return the position after some more text."""
        in_string, escape = self.in_string, self.escape
        for char in text:
            if escape:
                escape += char
                if escape[1] != "u" or len(escape) == 6:
                    escape = ""
            elif char == '"':
                in_string = not in_string
            elif char == "\\" and in_string:
                escape = char
        return JsonPosition(in_string, escape)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
