"""Find the JSON type of a value, and the types that a JSON Schema allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..structured.schema import reference_target

__all__ = [
    "JSON_TYPES",
    "alternatives",
    "items_schema",
    "json_type",
    "member_schema",
    "properties_of",
    "types_allowed",
    "values_of",
]

JSON_TYPES = ("object", "array", "null", "boolean", "number", "string")
"""All JSON types; integers are numbers."""

MAX_DEPTH = 20  # levels of references and alternatives


def json_type(value: Any) -> str:
    """Return the JSON type of a value.

    Raises
    ------
    InvalidArgumentError
        If the value is not a JSON value.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, types in (("number", (int, float)), ("string", str), ("object", Mapping)):
        if isinstance(value, types):
            return kind
    if isinstance(value, list | tuple):
        return "array"
    raise InvalidArgumentError(f"expected a JSON value, got {type(value).__name__}")


def types_allowed(schema: Any, root: Any) -> set[str]:
    """Return the JSON types that a schema allows.

    Parameters
    ----------
    schema
        The schema of a value.
    root
        The schema in which references are resolved.
    """
    allowed: set[str] = set()
    for each in alternatives(schema, root):
        if "enum" in each:
            allowed.update(map(json_type, each["enum"]))
        elif "const" in each:
            allowed.add(json_type(each["const"]))
        elif "type" in each:
            types = each["type"] if isinstance(each["type"], list) else [each["type"]]
            allowed.update("number" if kind == "integer" else kind for kind in types)
        elif "properties" in each:
            allowed.add("object")
        else:
            return set(JSON_TYPES)
    return allowed & set(JSON_TYPES)


def member_schema(schema: Any, key: str, root: Any) -> Any:
    """Return the schema of a member of an object."""
    found = []
    for each in alternatives(schema, root):
        properties = each.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            found.append(properties[key])
        elif isinstance(each.get("additionalProperties"), Mapping):
            found.append(each["additionalProperties"])
    return {"anyOf": found} if found else {}


def items_schema(schema: Any, index: int, root: Any) -> Any:
    """Return the schema of an item of an array."""
    found = []
    for each in alternatives(schema, root):
        first = each.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            found.append(first[index])
        elif "items" in each:
            found.append(each["items"])
    return {"anyOf": found} if found else {}


def values_of(schema: Any, root: Any) -> list[Any] | None:
    """Return the values of ``enum`` and ``const``; None if the schema allows other values."""
    values: list[Any] = []
    for each in alternatives(schema, root):
        if "enum" in each:
            values += each["enum"]
        elif "const" in each:
            values.append(each["const"])
        else:
            return None
    return values


def properties_of(schema: Any, root: Any) -> tuple[list[str], set[str]]:
    """Return the names of an object's properties, and the names that every alternative requires."""
    names: dict[str, None] = {}
    required: set[str] | None = None
    for each in alternatives(schema, root):
        names |= dict.fromkeys(each.get("properties", ()))
        needed = set(each.get("required", ()))
        required = needed if required is None else required & needed
    return list(names), required or set()


def alternatives(
    schema: Any, root: Any, depth: int = 0, seen: set[str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Resolve references and alternatives: yield the simple schemas that a schema consists of.

    Parameters
    ----------
    schema, root
        As in :func:`types_allowed`.
    depth
        How many schemas contain this one.
    seen
        The references that have been followed. Each is followed only once, because the number of
        references may grow exponentially.
    """
    seen = set() if seen is None else seen
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        yield {}
        return
    if isinstance(schema.get("$ref"), str):
        if schema["$ref"] not in seen:
            seen.add(schema["$ref"])
            target = reference_target(root, schema["$ref"])
            yield from alternatives(target, root, depth + 1, seen)
        return
    branches = [
        branch
        for keyword in ("anyOf", "oneOf", "allOf")
        if isinstance(schema.get(keyword), list)
        for branch in schema[keyword]
    ]
    if not branches or any(key in schema for key in ("type", "enum", "const", "properties")):
        yield schema
    for branch in branches:
        yield from alternatives(branch, root, depth + 1, seen)
