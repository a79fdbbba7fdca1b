"""Write and read JSON, and find out whether a partial JSON text ends inside a string."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from ..checks import check_kind, check_unicode
from ..errors import InvalidArgumentError

LONGEST_INTEGER = 4000
"""The length up to which an integer is read as an ``int``. Longer integers are read as floats,
because Python's ``int`` rejects more than 4,300 digits. JavaScript reads all numbers as floats."""


def json_text(value: Any) -> str:
    """Return a value as JSON without white space. Non-ASCII characters are not escaped.

    Raise InvalidArgumentError if JSON cannot represent the value, or it contains a lone surrogate.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not a JSON value: {error}") from None
    check_unicode(text, "the value")
    return text


def string_body(text: str) -> str:
    """Return a string as JSON, without the quotes."""
    return json_text(text)[1:-1]


def string_from_body(body: str) -> str:
    """Return the text of a JSON string without quotes: the inverse of :func:`string_body`.

    Raise InvalidArgumentError if `body` is not the inside of a single JSON string.
    """
    value = read_json(f'"{body}"')
    if not isinstance(value, str):
        raise InvalidArgumentError(f"expected the inside of a JSON string, got {body!r}")
    return value


def read_json(text: str) -> Any:
    """Return the value of a JSON text; raise InvalidArgumentError if the text is not JSON.

    Unlike in Python's reader, NaN and infinities are rejected.
    """
    check_kind("text", text, (str, bytes), "a string")
    try:
        return json.loads(text, parse_int=_integer, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not JSON: {error}") from None


@dataclass
class JsonScanner:
    """The state at the end of a partial JSON text.

    Attributes
    ----------
    in_string : bool
        Whether the text ends inside a string, so that the next character is part of the string or
        its closing quote.
    escape : str
        The incomplete escape sequence at the end, such as ``"\\u00"``, or empty.
    depth : int
        How many arrays and objects are open.
    """

    in_string: bool = False
    escape: str = ""
    depth: int = 0

    def push(self, text: str) -> None:
        """Append text."""
        for char in text:
            if self.escape:
                self.escape += char
                if self.escape[1] != "u" or len(self.escape) == 6:
                    self.escape = ""
            elif char == '"':
                self.in_string = not self.in_string
            elif not self.in_string:
                self.depth += (char in "[{") - (char in "]}")
            elif char == "\\":
                self.escape = char


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


def reject_constant(name: str) -> NoReturn:
    """Reject NaN and infinities, which Python's JSON reader accepts."""
    raise ValueError(f"{name} is not a JSON value")
