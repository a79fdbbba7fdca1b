"""Write and read JSON, and find out whether a partial JSON text ends inside a string."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from ..checks import check_kind, check_unicode
from ..errors import InvalidArgumentError

LONGEST_INTEGER = 4000
"""The length up to which an integer is read as an ``int``. Longer integers are read as floats,
because Python's ``int`` rejects more than 4,300 digits. JavaScript reads all numbers as floats."""

ENDS_PLAIN_TEXT = re.compile(rb'["\\]')
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["\[\]{},]')


def pointer_part(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def json_parts(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield JSON data and all parts of it, in their order, with their JSON pointers."""
    open_parts = [iter([("", data)])]  # without recursion, because the data may be nested deeply
    while open_parts:
        found = next(open_parts[-1], None)
        if found is None:
            open_parts.pop()
        else:
            yield found
            open_parts.append(_direct_parts(*found))


def _direct_parts(pointer: str, part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):  # JSON has no other mappings
        for name, inner in part.items():
            if not isinstance(name, str) or not is_unicode(name):
                raise InvalidArgumentError(
                    f"the schema is not JSON: expected strings as keys, got {name!r:.80}"
                )
            yield f"{pointer}/{pointer_part(name)}", inner
    elif isinstance(part, list | tuple):
        yield from ((f"{pointer}/{i}", inner) for i, inner in enumerate(part))


def is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def json_text(value: Any) -> str:
    """Return a value as JSON without white space, and without escapes for characters that are not
    ASCII. Raise InvalidArgumentError if JSON cannot represent the value, or it contains a lone
    surrogate."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not a JSON value: {error}") from None
    check_unicode(text, "the value")
    return text


def string_body(text: str) -> str:
    return json_text(text)[1:-1]


def string_from_body(body: str) -> str:
    """Return the text of a JSON string without quotes: the inverse of :func:`string_body`."""
    value = read_json(f'"{body}"')
    if not isinstance(value, str):
        raise InvalidArgumentError(f"expected the inside of a JSON string, got {body!r}")
    return value


def read_json(text: str) -> Any:
    """Return the value of a JSON text; raise InvalidArgumentError if it is not JSON, or has NaN."""
    check_kind("text", text, (str, bytes), "a string")
    try:
        return json.loads(text, parse_int=_integer, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not JSON: {error}") from None


@dataclass
class JsonScanner:
    """The state at the end of a partial JSON text."""

    in_string: bool = False  # the next character is part of a string or its closing quote
    escape: str = ""  # the incomplete escape sequence at the end, such as "\u00"
    depth: int = 0  # how many arrays and objects are open
    is_plain: bool = False  # text without quotes and backslashes would only lengthen a string

    def push(self, text: str, marks: list[tuple[str, int, bool]] | None = None) -> int:
        """Append text. Return the index after the first string, array or object that is closed and
        is in no other one; -1 if the text closes none. Append the text's quotes, brackets and
        commas to `marks`, each with the index after it, and whether a string follows."""
        at, first = 0, -1
        while at < len(text):
            if self.escape:
                size = (6 if (self.escape + text[at])[1] == "u" else 2) - len(self.escape)
                self.escape += text[at : at + size]
                at += size
                if at <= len(text):
                    self.escape = ""
                continue
            found = (_IN_STRING if self.in_string else _OUTSIDE).search(text, at)
            if found is None:
                break
            char, at = found.group(), found.end()
            if char == "\\":
                self.escape = char
                continue
            if char == '"':
                self.in_string = not self.in_string
            elif char != ",":
                self.depth += 1 if char in "[{" else -1
            if first < 0 and char != "," and not self.depth and not self.in_string:
                first = at
            if marks is not None:
                marks.append((char, at, self.in_string))
        self.is_plain = self.in_string and not self.escape
        return first


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


def reject_constant(name: str) -> NoReturn:
    """Reject NaN and infinities, which Python's JSON reader accepts."""
    raise ValueError(f"{name} is not a JSON value")
