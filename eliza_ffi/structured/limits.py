"""Size limits for llguidance's input, because its compilation cannot be interrupted.

Compile time grows with the length of the grammar or schema, with the number of enum values, and
with the square of the number of fields of an object. At these limits it is about two seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..checks import wrong
from ..errors import InvalidArgumentError
from .meta_schema import checked_draft

__all__ = [
    "DEEPEST",
    "MOST_BYTES",
    "MOST_FIELDS",
    "MOST_SCHEMA_BYTES",
    "MOST_VALUES",
    "checked_schema",
    "checked_text",
    "pointer_part",
]

MOST_SCHEMA_BYTES = 2**20
"""The longest schema, in bytes of JSON in UTF-8."""

MOST_BYTES = 2**18
"""The longest regular expression or Lark grammar, in bytes of UTF-8."""

MOST_VALUES = 2**15
"""The maximum number of values, also nested, in all ``enum`` and ``const`` of a schema together."""

MOST_FIELDS = 2**12
"""The maximum number of ``properties``, and of ``patternProperties``, of one object."""

DEEPEST = 100
"""The deepest nesting of arrays and objects in a schema's JSON."""


def checked_text(kind: str, text: Any) -> str:
    """Check a regular expression or a grammar, and return it.

    Parameters
    ----------
    kind
        What messages call the text, such as ``"Lark grammar"``.
    text

    Raises
    ------
    InvalidArgumentError
        If it is not a string, contains a lone surrogate, or is too long.
    """
    if not isinstance(text, str):
        raise wrong(f"a {kind}", "a string", text)
    _check_bytes(f"the {kind}", text, MOST_BYTES)
    return text


def checked_schema(schema: Any) -> str:
    """Check a schema, and return it as JSON.

    Raises
    ------
    InvalidArgumentError
        If the schema is not JSON, a keyword's value has a wrong form, or a limit is exceeded. The
        message names the place.
    """
    _Walk().check(schema)
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the schema is not JSON: {error}") from None
    _check_bytes("the schema", text, MOST_SCHEMA_BYTES)
    checked_draft(text)
    return text


class _Walk:
    """Visits every part of a schema's JSON and checks the limits."""

    def __init__(self) -> None:
        self._path: list[object] = []
        self._n_values = 0

    def check(self, part: Any, is_value: bool = False) -> None:
        """Check a part and its inner parts. `DEEPEST` also limits the recursion."""
        if len(self._path) > DEEPEST:
            raise self._error(f"the schema is nested deeper than {DEEPEST} levels")
        self._n_values += is_value
        if self._n_values > MOST_VALUES:
            raise self._error(
                f"expected at most {MOST_VALUES} values in all enum and const together, got more"
            )
        if isinstance(part, str) and not _is_unicode(part):
            raise self._error("the string has a lone surrogate, which is not a character")
        for name in ("properties", "patternProperties"):
            fields = part.get(name) if isinstance(part, dict) else None
            if isinstance(fields, dict) and len(fields) > MOST_FIELDS:
                raise self._error(
                    f"{name}: expected at most {MOST_FIELDS} fields, got {len(fields)}"
                )
        for step, inner, is_inner_value in _inner(part, is_value):
            self._path.append(step)
            self.check(inner, is_inner_value)
            self._path.pop()

    def _error(self, text: str) -> InvalidArgumentError:
        names = (name if isinstance(name, tuple) else (name,) for name in self._path)
        place = "".join(f"/{pointer_part(name)}" for each in names for name in each)
        place = place.encode(errors="replace").decode()
        if len(place) > 200:
            place = f"{place[:200]}..."
        return InvalidArgumentError(f"JSON schema at #{place}: {text}")


def _inner(part: Any, is_value: bool) -> Iterator[tuple[object, Any, bool]]:
    """Yield the inner parts: name, value, and whether it counts as a value of enum or const."""
    if isinstance(part, dict):  # JSON has no other mappings
        for name, each in part.items():
            if not isinstance(name, str) or not _is_unicode(name):
                raise InvalidArgumentError(
                    f"the schema is not JSON: expected strings as keys, got {name!r:.80}"
                )
            if name == "enum" and isinstance(each, list | tuple) and not is_value:
                yield from ((("enum", i), value, True) for i, value in enumerate(each))
            else:
                yield name, each, is_value or name == "const"
    elif isinstance(part, list | tuple):
        for i, each in enumerate(part):
            yield i, each, is_value


def pointer_part(name: object) -> str:
    """Escape a name for a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _check_bytes(what: str, text: str, most: int) -> None:
    if len(text) <= most and not _is_unicode(text):
        raise InvalidArgumentError(f"{what} has a lone surrogate, which is not a character")
    n_bytes = len(text) if len(text) > most else len(text.encode())
    if n_bytes > most:
        raise InvalidArgumentError(
            f"{what} is too long: expected at most {most} bytes in UTF-8, got more"
        )
