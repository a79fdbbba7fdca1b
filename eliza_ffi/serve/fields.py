"""The fields of requests: pydantic models, and one error message for the first wrong field."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from .refusals import Refusal

__all__ = [
    "BY_TYPE",
    "MAX_NAME_LENGTH",
    "Body",
    "NoEffect",
    "NotBlank",
    "StringOrArray",
    "StringOrObject",
    "by_kind",
    "read_fields",
]

MAX_NAME_LENGTH = 40
"""Messages and suggestions use at most this many characters of a field's name."""

_KINDS = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}

NoEffect: TypeAlias = Annotated[Any, Field(default=None, description="accepted, without effect")]
"""A field that clients send in ordinary use, and that has no effect here."""

NotBlank: TypeAlias = Annotated[str, Field(pattern=r"\S")]
"""A string that is not blank."""

BY_TYPE = Field(discriminator="type")
"""Selects the alternative of a union of objects by the field ``type``."""


class Body(BaseModel):
    """An object in a request. It has only the listed fields, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


B = TypeVar("B", bound=Body)
S = TypeVar("S")
T = TypeVar("T")


def _either(names: Iterable[str]) -> str:
    """Join names: ``a, b or c``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _kind_of(value: Any) -> str:
    return _KINDS[type(value)]


def _with_article(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind in ("array", "object") else f"a {kind}"


def by_kind(*kinds: str) -> Discriminator:
    """Select the alternative of a union by the kind of the JSON value; each kind is a tag."""
    expected = f"expected {_either(_with_article(kind) for kind in kinds)}"
    return Discriminator(_kind_of, custom_error_type="unfit", custom_error_message=expected)


StringOrArray: TypeAlias = Annotated[
    Annotated[S, Tag("string")] | Annotated[T, Tag("array")], by_kind("string", "array")
]
StringOrObject: TypeAlias = Annotated[
    Annotated[S, Tag("string")] | Annotated[T, Tag("object")], by_kind("string", "object")
]


def read_fields(kind: type[B], given: Any) -> B:
    """Read a JSON object as a model.

    Raises
    ------
    Refusal
        If a field does not fit. The message names the field, what was expected and what was found.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _refusal(kind, given, error) from None


def _refusal(kind: type[Body], given: Any, failed: ValidationError) -> Refusal:
    """Return the response for one error: the first unknown field, otherwise the first error.

    An unknown field comes first because it may be the cause of all other errors.
    """
    errors = failed.errors(include_url=False)
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    path, value = _path(given, error["loc"], error["type"])
    context: dict[str, Any] = error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        known = kind.model_fields if len(path) == 1 else ()
        close = get_close_matches(str(path[-1])[:MAX_NAME_LENGTH], known, n=1)
        problem = "this field is not supported" + (f"; did you mean {close[0]}?" if close else "")
    elif error["type"] == "missing":
        problem = "this field is missing"
    elif error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "type")
        problem = "this field is missing"
        if error["type"] == "union_tag_invalid":
            tags = _either(context["expected_tags"].replace("'", "").split(", "))
            problem = f"expected {tags}, got {_shown(value['type'])}"
    elif error["type"] == "value_error":
        problem = str(context["error"])
    else:
        problem = f"expected {_expected(error['type'], error['msg'], context)}, got "
        problem += _found(error["type"], value)
    param = str(path[0])[:MAX_NAME_LENGTH] if path else None
    code = "unknown_parameter" if error["type"] == "extra_forbidden" else "invalid_value"
    return Refusal(400, f"{_written(path)}: {problem}", code, param, place=path)


def _path(given: Any, steps: tuple[int | str, ...], kind: str) -> tuple[tuple[Any, ...], Any]:
    """Return the path of an error and the value there.

    pydantic puts the tags of unions between the names and indices. They are left out.
    """
    path: list[Any] = []
    for i, step in enumerate(steps):
        is_last = i == len(steps) - 1
        if isinstance(given, dict) and (step in given or (is_last and kind == "missing")):
            given = given.get(step)
        elif isinstance(given, list) and isinstance(step, int):
            given = given[step]
        elif step == "[key]":
            given = path[-1]
            continue
        else:
            continue
        path.append(step)
    return tuple(path), given


_EXPECTED = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "none_required": "null",
    "string_pattern_mismatch": "a string that is not blank",
    "string_too_short": "a string that is not empty",
    "string_type": "a string",
}


def _expected(kind: str, message: str, context: dict[str, Any]) -> str:
    """Return what was expected in place of a wrong value."""
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "unfit":
        return message.removeprefix("expected ")
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "")
        return {"True": "true", "False": "false"}.get(expected, expected)
    if kind in ("too_short", "too_long"):
        items = "fields" if context["field_type"] == "Dictionary" else "items"
        if kind == "too_short":
            return f"{context['min_length']} or more {items}"
        return f"at most {context['max_length']} {items}"
    expected = message.removeprefix("Input should be ")
    for long, short in (("greater", "at least"), ("less", "at most")):
        expected = expected.replace(f"{long} than or equal to", short)
    return expected


def _found(kind: str, value: Any) -> str:
    return str(len(value)) if kind in ("too_short", "too_long") else _shown(value)


def _written(path: tuple[Any, ...]) -> str:
    """Format a path, such as ``questions[0].name``."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= MAX_NAME_LENGTH:
            text += f".{step}" if text else step
        else:
            text += f"[{reprlib.repr(step)}]"
    return text or "the request"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _with_article(_kind_of(value))
    return reprlib.repr(value) if isinstance(value, str) else json.dumps(value)
