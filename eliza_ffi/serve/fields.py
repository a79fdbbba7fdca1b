"""Check a request against the schema of its format, and name the field that does not match.

This module implements only the parts of JSON Schema that our schemas use. A general validator could
not always name the field: if a value matches none of several alternatives, it reports just that.
Here the JSON type of the value, or its field `type`, selects the alternative to check against.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

from .schemas import Schema

__all__ = ["UnfitField", "check_fields"]

MAX_NAME_LENGTH = 40
"""Messages and suggestions use at most this many characters of a field's name."""

Path: TypeAlias = "tuple[str | int, ...]"

_KINDS = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_WITH_ARTICLES = {"object": "an object", "array": "an array", "null": "null"}


class UnfitField(Exception):  # noqa: N818 - an outcome
    """A field of a request does not match the schema.

    Parameters
    ----------
    path
        The field names and list indices on the way to the field.
    problem
        What is wrong with the field.
    is_unknown
        Whether the schema has no field of this name.
    """

    def __init__(self, path: Path, problem: str, *, is_unknown: bool = False) -> None:
        super().__init__(f"{_written(path)}: {problem}")
        self.param = str(path[0])[:MAX_NAME_LENGTH] if path else None
        self.is_unknown = is_unknown


def check_fields(value: Any, schema: Schema, path: Path = ()) -> None:
    """Check a JSON value against a schema of :mod:`~eliza_ffi.serve.schemas`.

    Parameters
    ----------
    value
    schema
    path
        The field names and list indices on the way to the value.

    Raises
    ------
    UnfitField
        For the first field that does not match.
    """
    if "oneOf" in schema:
        schema = _alternative(value, schema["oneOf"], path)
    kinds = _listed(schema.get("type"))
    if kinds and _KINDS[type(value)] not in kinds:
        raise _unfit(path, _either(map(_with_article, kinds)), value)
    if "enum" in schema and value not in schema["enum"]:
        raise _unfit(path, _either(schema["enum"]), value)
    if isinstance(value, str):
        _check_text(value, schema, path)
    elif isinstance(value, list):
        _check_count(len(value), schema.get("minItems", 0), schema.get("maxItems"), "items", path)
        for i, each in enumerate(value):
            check_fields(each, schema.get("items", {}), (*path, i))
    elif isinstance(value, dict):
        _check_object(value, schema, path)


def _check_text(text: str, schema: Schema, path: Path) -> None:
    if len(text) < schema.get("minLength", 0):
        raise _unfit(path, "a string that is not empty", text)
    if "pattern" in schema and not re.search(schema["pattern"], text):
        raise _unfit(path, "a string that is not blank", text)


def _check_object(value: dict[str, Any], schema: Schema, path: Path) -> None:
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    _check_count(len(value), least, most, "fields", path)
    fields = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    for name, each in value.items():
        inside = (*path, name)
        if name in fields:
            check_fields(each, fields[name], inside)
        elif others is False:
            close = get_close_matches(name[:MAX_NAME_LENGTH], fields, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UnfitField(inside, f"this field is not supported{hint}", is_unknown=True)
        else:
            _check_text(name, schema.get("propertyNames", {}), inside)
            check_fields(each, others, inside)
    for name in schema.get("required", ()):
        if name not in value:
            raise UnfitField((*path, name), "this field is missing")


def _check_count(n: int, least: int, most: int | None, what: str, path: Path) -> None:
    if n < least or (most is not None and n > most):
        expected = f"{least} or more" if most is None else f"{least} to {most}"
        raise UnfitField(path, f"expected {expected} {what}, got {n}")


def _alternative(value: Any, alternatives: list[Schema], path: Path) -> Schema:
    """Select the alternative by the JSON type of the value, or by its field `type`."""
    kind = _KINDS[type(value)]
    fitting = [each for each in alternatives if kind in _listed(each["type"])]
    if not fitting:
        kinds = dict.fromkeys(name for each in alternatives for name in _listed(each["type"]))
        raise _unfit(path, _either(map(_with_article, kinds)), value)
    if not isinstance(value, dict) or len(fitting) == 1:
        return fitting[0]
    types: dict[str, Schema] = {}
    default = None
    for schema in fitting:
        type_schema = schema["properties"]["type"]
        types |= dict.fromkeys(type_schema["enum"], schema)
        default = type_schema.get("default", default)
    given = value.get("type", default)
    if not isinstance(given, str) or given not in types:
        raise _unfit((*path, "type"), _either(types), given)
    return types[given]


def _unfit(path: Path, expected: str, value: Any) -> UnfitField:
    return UnfitField(path, f"expected {expected}, got {_shown(value)}")


def _written(path: Path) -> str:
    """Format a path, such as ``questions[0].name``."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= MAX_NAME_LENGTH:
            text += f".{step}" if text else step
        else:
            text += f"[{reprlib.repr(step)}]"
    return text or "the request"


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]


def _with_article(kind: str) -> str:
    return _WITH_ARTICLES.get(kind, f"a {kind}")


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _with_article(_KINDS[type(value)])
    return reprlib.repr(value) if isinstance(value, str) else json.dumps(value)
