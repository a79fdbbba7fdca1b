"""What llguidance is given at most: once it compiles, nothing stops it.

Its time grows with the bytes of a language, with the values of choices, and with the square of the
fields of an object. At these limits it takes about two seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..checks import wrong
from ..errors import InvalidArgumentError

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
"""The most bytes of a schema, as JSON in UTF-8."""

MOST_BYTES = 2**18
"""The most bytes of a regular expression or a Lark grammar, in UTF-8."""

MOST_VALUES = 2**15
"""The most values in all ``enum`` and ``const`` of a schema together, those inside others too."""

MOST_FIELDS = 2**12
"""The most ``properties``, and the most ``patternProperties``, of one object."""

DEEPEST = 100
"""The deepest that arrays and objects of a schema's JSON may stand in each other."""


def checked_text(kind: str, text: Any) -> str:
    """Return the text of a language.

    Raises
    ------
    InvalidArgumentError
        If it is none, is no Unicode, or has too many bytes.
    """
    if not isinstance(text, str):
        raise wrong(f"a {kind}", "a string", text)
    _check_bytes(f"the {kind}", text, MOST_BYTES)
    return text


def checked_schema(schema: Any) -> str:
    """Return a schema as JSON.

    Raises
    ------
    InvalidArgumentError
        If it is not JSON, or above a limit. The message names that, and the place.
    """
    _Walk().check(schema)
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the schema is not JSON: {error}") from None
    _check_bytes("the schema", text, MOST_SCHEMA_BYTES)
    return text


class _Walk:
    """A walk through the parts of a schema, whatever they mean."""

    def __init__(self) -> None:
        self._path: list[object] = []
        self._n_values = 0

    def check(self, schema: Any) -> None:
        """Check each part; the walk is no recursion, so that any depth comes to its error."""
        self._check_part(schema, False)
        pending = [_inner(schema, False)]
        while pending:
            found = next(pending[-1], None)
            del self._path[len(pending) - 1 :]
            if found is None:
                pending.pop()
                continue
            name, part, is_value = found
            self._path.append(name)
            self._check_part(part, is_value)
            pending.append(_inner(part, is_value))

    def _check_part(self, part: Any, is_value: bool) -> None:
        if len(self._path) > DEEPEST:
            raise self._error(f"the schema is nested deeper than {DEEPEST} levels")
        self._n_values += is_value
        if self._n_values > MOST_VALUES:
            raise self._error(
                f"enum and const have more than {MOST_VALUES} values in all, and llguidance is "
                f"given so many at most"
            )
        if isinstance(part, str) and not _is_unicode(part):
            raise self._error("a lone surrogate is no character")
        if not isinstance(part, Mapping):
            return
        for name in ("properties", "patternProperties"):
            fields = part.get(name)
            if isinstance(fields, Mapping) and len(fields) > MOST_FIELDS:
                raise self._error(
                    f"{name} has {len(fields)} fields, and llguidance is given {MOST_FIELDS} at "
                    f"most"
                )

    def _error(self, text: str) -> InvalidArgumentError:
        names = (name if isinstance(name, tuple) else (name,) for name in self._path)
        place = "".join(f"/{pointer_part(name)}" for each in names for name in each)
        place = place.encode(errors="replace").decode()
        if len(place) > 200:
            place = f"{place[:200]}..."
        return InvalidArgumentError(f"JSON schema at #{place}: {text}")


def _inner(part: Any, is_value: bool) -> Iterator[tuple[object, Any, bool]]:
    """Yield what is inside a part: its name there, itself, and whether it is one of a choice."""
    if isinstance(part, Mapping):
        for name, each in part.items():
            if not isinstance(name, str) or not _is_unicode(name):
                raise InvalidArgumentError(f"the schema is not JSON: a key is {name!r:.80}")
            if name == "enum" and isinstance(each, list | tuple) and not is_value:
                yield from ((("enum", i), value, True) for i, value in enumerate(each))
            else:
                yield name, each, is_value or name == "const"
    elif isinstance(part, list | tuple):
        for i, each in enumerate(part):
            yield i, each, is_value


def pointer_part(name: object) -> str:
    """Return a name as it stands in a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _check_bytes(what: str, text: str, most: int) -> None:
    if len(text) <= most and not _is_unicode(text):
        raise InvalidArgumentError(f"{what} has a lone surrogate, which is no character")
    n_bytes = len(text) if len(text) > most else len(text.encode())
    if n_bytes > most:
        raise InvalidArgumentError(
            f"{what} has more bytes than {most}, and llguidance is given so many at most"
        )
