"""Size limits for llguidance's input, because its compilation cannot be interrupted. It takes about
two seconds at these limits."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from ..checks import wrong
from ..errors import InvalidArgumentError
from .json_text import is_unicode, json_parts
from .meta_schema import checked_draft
from .nullable import with_null

MAX_SCHEMA_BYTES = 2**20
"""The longest schema, in bytes of JSON in UTF-8."""

MAX_BYTES = 2**18
"""The longest regular expression or Lark grammar, in bytes of UTF-8."""

MAX_VALUES = 2**15
"""The maximum number of values, also nested, in all ``enum`` and ``const`` of a schema together."""

MAX_FIELDS = 2**12
"""The maximum number of ``properties``, and of ``patternProperties``, of one object."""

DEEPEST = 100
"""The deepest nesting of arrays and objects in a schema's JSON."""

_VALUE = re.compile(r"/(?:const(?:/|$)|enum/\d)")


def checked_text(kind: str, text: Any) -> str:
    """Return a regular expression or a grammar. Raise InvalidArgumentError if it is not a string,
    or too long."""
    if not isinstance(text, str):
        raise wrong(f"a {kind}", "a string", text)
    _check_bytes(f"the {kind}", text, MAX_BYTES)
    return text


def checked_schema(schema: Any) -> str:
    """Check a schema, and return it as JSON, in which ``nullable`` is written as JSON Schema.
    Errors are InvalidArgumentErrors that name the place."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (RecursionError, TypeError, ValueError) as error:
        _check_parts(schema)
        raise InvalidArgumentError(f"the schema is not JSON: {error}") from None
    state = _state_of(text)
    if not state:
        _check_parts(schema)
        _check_bytes("the schema", text, MAX_SCHEMA_BYTES)
        checked_draft(text)
        state.append(with_null(text))
    return state[0]


@functools.lru_cache(maxsize=64)
def _state_of(text: str) -> list[str]:
    """Return a list for each recent schema, which gets the result once the schema was checked."""
    return []


def _check_parts(schema: Any) -> None:
    n_values = 0
    for pointer, part in json_parts(schema):
        problem = ""
        n_values += _VALUE.search(pointer) is not None
        if n_values > MAX_VALUES:
            problem = f"expected at most {MAX_VALUES} values in all enum and const together"
        elif pointer.count("/") > DEEPEST:
            problem = f"the schema is nested deeper than {DEEPEST} levels"
        elif isinstance(part, str) and not is_unicode(part):
            problem = "the string has a lone surrogate, which is not a character"
        elif isinstance(part, dict):
            for name in ("properties", "patternProperties"):
                fields = part.get(name)
                if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
                    problem = f"{name}: expected at most {MAX_FIELDS} fields, got {len(fields)}"
        if problem:
            shown = pointer if len(pointer) <= 200 else f"{pointer[:200]}..."
            raise InvalidArgumentError(f"JSON schema at #{shown}: {problem}")


def _check_bytes(what: str, text: str, most: int) -> None:
    if len(text) <= most and not is_unicode(text):
        raise InvalidArgumentError(f"{what} has a lone surrogate, which is not a character")
    n_bytes = len(text) if len(text) > most else len(text.encode())
    if n_bytes > most:
        raise InvalidArgumentError(
            f"{what} is too long: expected at most {most} bytes in UTF-8, got more"
        )
