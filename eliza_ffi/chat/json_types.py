"""Find the JSON type of a value, and the types that a JSON Schema allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError
from ..structured.schema import reference_target

JSON_TYPES = ("object", "array", "null", "boolean", "number", "string")
"""All JSON types; integers are numbers."""

MAX_DEPTH = 20  # levels of references and alternatives

MOST_FORMS = 16
"""The maximum number of alternatives of an object that are kept apart."""


def json_type(value: Any) -> str:
    """Return the JSON type of a value; raise InvalidArgumentError if it is not a JSON value."""
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
    """Return the JSON types that a schema allows. References are resolved in `root`."""
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


@dataclass(frozen=True)
class ObjectForm:
    """The properties of an object in one of its alternatives, in the order of the schema."""

    names: tuple[str, ...]
    required: frozenset[str]

    def and_(self, other: ObjectForm) -> ObjectForm:
        """Return the form of an object that has both forms."""
        names = dict.fromkeys((*self.names, *other.names))
        return ObjectForm(tuple(names), self.required | other.required)


def object_forms(schema: Any, root: Any) -> tuple[ObjectForm, ...]:
    """Return the alternatives of an object; empty if no value of the schema is an object.

    More than `MOST_FORMS` alternatives are joined to one, which requires what all of them require.
    """
    return _forms(schema, root, {})


def _forms(
    schema: Any, root: Any, known: dict[int, tuple[ObjectForm, ...]]
) -> tuple[ObjectForm, ...]:
    """Compute `object_forms`. `known` has the forms of other schemas, by their identity."""
    if not isinstance(schema, Mapping):
        return (ObjectForm((), frozenset()),)
    if id(schema) not in known:
        known[id(schema)] = ()  # a schema that refers to itself adds nothing
        known[id(schema)] = _own_forms(schema, root, known)
    return known[id(schema)]


def _own_forms(
    schema: Mapping[str, Any], root: Any, known: dict[int, tuple[ObjectForm, ...]]
) -> tuple[ObjectForm, ...]:
    kinds = schema.get("type", "object")
    if "object" not in ([kinds] if isinstance(kinds, str) else kinds):
        return ()
    names, required = schema.get("properties", ()), schema.get("required", ())
    forms: tuple[ObjectForm, ...] = (ObjectForm(tuple(names), frozenset(required)),)
    groups = [[each] for each in schema.get("allOf", ())]
    groups += [schema[keyword] for keyword in ("anyOf", "oneOf") if keyword in schema]
    if isinstance(schema.get("$ref"), str):
        groups.append([reference_target(root, schema["$ref"])])
    for group in groups:
        others = [form for each in group for form in _forms(each, root, known)]
        forms = tuple(dict.fromkeys(form.and_(other) for form in forms for other in others))
        if len(forms) > MOST_FORMS:
            names = dict.fromkeys(name for form in forms for name in form.names)
            required = frozenset.intersection(*(form.required for form in forms))
            forms = (ObjectForm(tuple(names), required),)
    return forms


def alternatives(
    schema: Any, root: Any, depth: int = 0, seen: set[str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Resolve references and alternatives: yield the simple schemas that a schema consists of.

    `depth` counts the schemas around this one. Each reference is followed only once, because the
    number of references may grow exponentially; `seen` has those that have been followed.
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
