"""Convert closed JSON Schemas to skeletons.

An answer to a closed schema consists of fixed text and of choices between known values (enums and
booleans). It takes at most one forward pass for each choice. The skeleton allows the same answers
as the token masks of the schema. If this module cannot tell that a schema is closed, token masks
are used instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .json_text import json_text
from .limits import MOST_VALUES
from .schema import ANNOTATIONS, reference_target
from .skeleton import Skeleton
from .spans import Scalar, SkeletonSpan

__all__ = ["closed_skeleton"]

MOST_FIELDS = 1000
DEEPEST = 32

LARGEST_INTEGER = 2**53
"""The largest integer that has only one spelling. Numbers with a fraction have several."""


def closed_skeleton(schema: Mapping[str, Any]) -> Skeleton | None:
    """Return the skeleton of a closed schema, or None if the schema is not closed.

    An enum, a constant, a boolean and null are closed schemas. An object is closed if it allows no
    additional properties, all of its properties are required, and each property is closed.
    """
    spans: list[SkeletonSpan] = []
    n_values = 0
    try:
        for span in _spans(schema, schema, "", 0):
            spans.append(span)
            n_values += len(span.enum_values or ())
            if len(spans) > 4 * MOST_FIELDS or n_values > MOST_VALUES:
                return None  # a few references can stand for millions of spans
    except _NotClosedError:
        return None
    return Skeleton(tuple(_merged(spans)))


class _NotClosedError(Exception):
    pass


def _spans(root: Mapping[str, Any], part: Any, key: str, depth: int) -> Iterator[SkeletonSpan]:
    if depth > DEEPEST:
        raise _NotClosedError
    part = _resolved(root, part)
    if part.get("type") != "object":
        yield _choice(part, key)
        return
    fields = part.get("properties", {})
    _check_closed(part, fields)
    opening = "{"
    for name, inner in fields.items():
        yield SkeletonSpan("literal", value=f"{opening}{_spelled(name)}:")
        yield from _spans(root, inner, f"{key}.{name}" if key else name, depth + 1)
        opening = ","
    yield SkeletonSpan("literal", value="}" if fields else "{}")


def _resolved(root: Mapping[str, Any], part: Any) -> Mapping[str, Any]:
    """Return the schema itself, or the definition that its ``$ref`` points to."""
    for _ in range(DEEPEST):
        if not isinstance(part, Mapping):
            raise _NotClosedError
        reference = part.get("$ref")
        if reference is None:
            return part
        if not ANNOTATIONS.issuperset(part.keys() - {"$ref"}) or not isinstance(reference, str):
            raise _NotClosedError
        part = reference_target(root, reference)
    raise _NotClosedError


def _check_closed(part: Mapping[str, Any], fields: Any) -> None:
    known = {"type", "properties", "required", "additionalProperties"} | ANNOTATIONS
    required = part.get("required", ())
    is_closed = (
        known.issuperset(part)
        and isinstance(fields, Mapping)
        and isinstance(required, list | tuple)
        and all(isinstance(name, str) for name in required)
        and set(required) == set(fields)
        and part.get("additionalProperties") is False
        and len(fields) <= MOST_FIELDS
    )
    if not is_closed:
        raise _NotClosedError


def _choice(part: Mapping[str, Any], key: str) -> SkeletonSpan:
    kind = part.get("type")
    given = part.keys() - ANNOTATIONS - {"type"}
    if not given and kind == "boolean":
        return SkeletonSpan("boolean", key or None)
    if not given and kind == "null":
        return SkeletonSpan("literal", value="null")
    if given == {"enum"}:
        values = part["enum"]
    elif given == {"const"}:
        values = [part["const"]]
    else:
        raise _NotClosedError
    if not isinstance(values, list | tuple) or not values:
        raise _NotClosedError
    for value in values:
        if kind is not None and kind != _type_of(value):
            raise _NotClosedError
        _spelled(value)
    if len({json_text(value) for value in values}) < len(values):
        raise _NotClosedError
    return SkeletonSpan("enum", key or None, enum_values=tuple(values))


def _type_of(value: Scalar) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", str: "string"}
    return names.get(type(value), "")


def _spelled(value: Any) -> str:
    """Return the only spelling of a value; raise if it has several spellings."""
    if isinstance(value, str):
        if any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in value):
            raise _NotClosedError
    elif not isinstance(value, int | None) or (value or 0) not in range(
        -LARGEST_INTEGER, LARGEST_INTEGER + 1
    ):
        raise _NotClosedError
    return json_text(value)


def _merged(spans: list[SkeletonSpan]) -> Iterator[SkeletonSpan]:
    """Join adjacent literals."""
    fixed = ""
    for span in spans:
        if span.kind == "literal":
            fixed += span.value or ""
            continue
        if fixed:
            yield SkeletonSpan("literal", value=fixed)
            fixed = ""
        yield span
    if fixed:
        yield SkeletonSpan("literal", value=fixed)
