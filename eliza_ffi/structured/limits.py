"""Size limits for llguidance's input, because its compilation cannot be interrupted.

Compile time grows with the length of the grammar or schema, with the number of enum values, and
with the square of the number of fields of an object. At these limits it is about two seconds.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

from ..checks import wrong
from ..errors import InvalidArgumentError
from .meta_schema import checked_draft

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

_VALUE = re.compile(r"/(?:const(?:/|$)|enum/\d)")


def checked_text(kind: str, text: Any) -> str:
    """Check a regular expression or a grammar, and return it. Messages call it `kind`.

    Raise InvalidArgumentError if it is not a string, contains a lone surrogate, or is too long.
    """
    if not isinstance(text, str):
        raise wrong(f"a {kind}", "a string", text)
    _check_bytes(f"the {kind}", text, MOST_BYTES)
    return text


def checked_schema(schema: Any) -> str:
    """Check a schema, and return it as JSON.

    Raise InvalidArgumentError with the location if the schema is not JSON, a keyword's value has a
    wrong form, or a limit is exceeded.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (RecursionError, TypeError, ValueError) as error:
        _check_parts(schema)
        raise InvalidArgumentError(f"the schema is not JSON: {error}") from None
    state = _state_of(text)
    if not state:
        _check_parts(schema)
        _check_bytes("the schema", text, MOST_SCHEMA_BYTES)
        checked_draft(text)
        state.append("checked")
    return text


@functools.lru_cache(maxsize=64)
def _state_of(text: str) -> list[str]:
    """Return a list for each recent schema, which is empty until the schema has been checked."""
    return []


def _check_parts(schema: Any) -> None:
    n_values = 0
    for pointer, part in json_parts(schema):
        problem = ""
        n_values += _VALUE.search(pointer) is not None
        if n_values > MOST_VALUES:
            problem = f"expected at most {MOST_VALUES} values in all enum and const together"
        elif pointer.count("/") > DEEPEST:
            problem = f"the schema is nested deeper than {DEEPEST} levels"
        elif isinstance(part, str) and not _is_unicode(part):
            problem = "the string has a lone surrogate, which is not a character"
        elif isinstance(part, dict):
            for name in ("properties", "patternProperties"):
                fields = part.get(name)
                if isinstance(fields, dict) and len(fields) > MOST_FIELDS:
                    problem = f"{name}: expected at most {MOST_FIELDS} fields, got {len(fields)}"
        if problem:
            shown = pointer if len(pointer) <= 200 else f"{pointer[:200]}..."
            raise InvalidArgumentError(f"JSON schema at #{shown}: {problem}")


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
            if not isinstance(name, str) or not _is_unicode(name):
                raise InvalidArgumentError(
                    f"the schema is not JSON: expected strings as keys, got {name!r:.80}"
                )
            yield f"{pointer}/{pointer_part(name)}", inner
    elif isinstance(part, list | tuple):
        yield from ((f"{pointer}/{i}", inner) for i, inner in enumerate(part))


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
