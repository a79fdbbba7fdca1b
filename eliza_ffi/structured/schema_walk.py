"""Walk JSON Schemas: their parts, references and alternatives, and the values that they allow."""

from __future__ import annotations

import functools
import graphlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError
from .limits import pointer_part

ANNOTATIONS = frozenset(
    (
        *("$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description"),
        *("examples", "readOnly", "title", "writeOnly"),
    )
)
"""The keywords that do not restrict the values of a schema."""

JSON_TYPES = ("object", "array", "null", "boolean", "number", "string")
"""All JSON types; integers are numbers."""

MAX_DEPTH = 20  # levels of references and alternatives

MOST_FORMS = 16
"""The maximum number of alternatives of an object that are kept apart."""

_IN_ONE = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_IN_LIST = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_BY_NAME = ("dependencies", "dependentSchemas", "patternProperties", "properties")
DEFINITIONS = ("$defs", "definitions")

_CLOSABLE = ANNOTATIONS | {"type", "properties", "required", "minProperties", "maxProperties"}
_OF_PARTS = frozenset(
    ("additionalProperties", "items", "patternProperties", "prefixItems", "properties")
)
"""The keywords whose schemas alone describe an item or a property."""

_OF_SAME_VALUE = frozenset(
    (
        *("$ref", "allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not"),
        *("oneOf", "then"),
    )
)
"""The keywords whose schemas describe the same value as the schema around them."""


# ---- the parts of a schema ---------------------------------------------------------------------


def schema_parts(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema and all subschemas that may apply to a value, with their JSON pointers.

    A definition is yielded once, where the first ``$ref`` names it. A reference that is not a plain
    JSON pointer may mean any definition.
    """
    pending: list[tuple[str, Any]] = [("", schema)]
    seen: set[str] = set()
    others = definitions(schema)  # those that no reference has named
    while pending:
        pointer, part = pending.pop()
        if pointer in seen or not isinstance(part, dict):
            continue
        seen.add(pointer)
        yield pointer, part
        if others and has_unknown_target(schema, part):
            pending, others = [*others, *pending], []
        inner = [(pointer, each) for _, pointer, each in subschemas(schema, pointer, part)]
        pending += reversed(inner)


def definitions(schema: dict[str, Any] | bool) -> list[tuple[str, Any]]:
    """Return the definitions of a schema, with their JSON pointers."""
    if not isinstance(schema, dict):  # True or False
        return []
    return [each for name in DEFINITIONS for each in _named(f"/{name}", schema.get(name))]


def has_unknown_target(root: dict[str, Any], part: dict[str, Any]) -> bool:
    """Return whether a schema has a ``$ref`` that is not a plain JSON pointer to a target."""
    reference = part.get("$ref")
    return isinstance(reference, str) and reference_target(root, reference) is None


def subschemas(
    root: dict[str, Any], pointer: str, part: dict[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Yield the schemas directly inside a schema: the keyword, the JSON pointer and the schema.

    The target of a ``$ref`` counts as one of them.
    """
    for key, value in part.items():
        found: Iterable[tuple[str, Any]] = ()
        if key == "$ref" and isinstance(value, str):
            found = [(value[1:], reference_target(root, value))]
        elif key in _IN_LIST and isinstance(value, list):
            found = ((f"{pointer}/{key}/{i}", each) for i, each in enumerate(value))
        elif key in _BY_NAME:
            found = _named(f"{pointer}/{key}", value)
        elif key in _IN_ONE:
            found = [(f"{pointer}/{key}", value)]
        yield from ((key, inner_pointer, each) for inner_pointer, each in found)


def _named(pointer: str, parts: Any) -> list[tuple[str, Any]]:
    named = parts.items() if isinstance(parts, dict) else ()
    return [(f"{pointer}/{pointer_part(name)}", each) for name, each in named]


def reference_target(root: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a JSON pointer within the schema, or None if there is no target."""
    if not f"{reference}/".startswith("#/") or "%" in reference:
        return None  # for example, the name of an anchor
    found: Any = root
    for name in reference[1:].split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and len(key) < 8 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def is_circular(schema: dict[str, Any]) -> bool:
    """Return whether a part of a schema leads back to itself for the same value.

    JSON Schema forbids this, because a validator would not come to an end.
    """
    inner: dict[int, list[int]] = {}  # by the identities of schemas
    for pointer, part in schema_parts(schema):
        found = subschemas(schema, pointer, part)
        inner[id(part)] = [id(each) for key, _, each in found if key in _OF_SAME_VALUE]
    try:
        graphlib.TopologicalSorter(inner).prepare()
    except graphlib.CycleError:
        return True
    return False


def is_endless(schema: Any) -> bool:
    """Return whether it is obvious that each value of a schema would contain another, without end.

    For example, a list of at least one item, each of which is such a list again.
    """
    # The keys are the identities of schemas.
    users: dict[int, list[tuple[int, int]]] = {}  # schemas that need this one, and which need it is
    unmet: dict[int, set[int]] = {}  # the needs of this schema
    finite: list[int] = []  # schemas with a value that ends
    pending = [schema]
    while pending:
        part = pending.pop()
        if id(part) in unmet:
            continue
        needs = _needs(part, schema)
        unmet[id(part)] = set(range(len(needs)))
        if not needs:
            finite.append(id(part))
        for i, need in enumerate(needs):
            pending += need
            for each in need:
                users.setdefault(id(each), []).append((id(part), i))
    for key in finite:  # the list grows
        for user, i in users.get(key, ()):
            if i in unmet[user]:
                unmet[user].remove(i)
                if not unmet[user]:
                    finite.append(user)
    return bool(unmet[id(schema)])


def _needs(part: Any, root: Any) -> list[list[Any]]:
    """Return lists of schemas: a value of `part` ends only if one of each list has such a value."""
    if not isinstance(part, Mapping) or "enum" in part or "const" in part:
        return []
    needs = [part[key] for key in ("anyOf", "oneOf") if key in part]
    if isinstance(part.get("$ref"), str) and ANNOTATIONS.issuperset(part.keys() - {"$ref"}):
        needs.append([reference_target(root, part["$ref"])])
    if part.get("type") == "object" and "patternProperties" not in part:
        fields, others = part.get("properties", {}), part.get("additionalProperties", True)
        needs += [[fields.get(name, others)] for name in part.get("required", ())]
    items = part.get("items", True)
    if part.get("type") == "array" and not isinstance(items, list):
        first, least = part.get("prefixItems", []), part.get("minItems", 0)
        needs += [[each] for n, each in enumerate(first) if n < least]
        needs += [[items]] if least > len(first) else []
    return needs


# ---- the values that a schema allows -----------------------------------------------------------


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

    More than `MOST_FORMS` alternatives are merged. The result requires what all of them require.
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


# ---- closed objects ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=128)
def closed_objects(schema_text: str) -> str:
    """Forbid undeclared properties of objects that only one part of a schema (as JSON) describes.

    A schema without ``additionalProperties`` allows undeclared properties. Tool definitions rarely
    intend that, and small models would write properties without end.

    Several schemas describe an object if it has ``properties`` beside ``anyOf``, ``oneOf`` or
    ``$ref``, or keywords such as ``allOf``, ``if`` and ``dependentSchemas``. Then none of them may
    forbid the properties of the others.
    """
    schema = json.loads(schema_text)
    parts = [part for _, part in schema_parts(schema)]
    shared: set[int] = set()  # the identities of schemas whose values others describe, too
    pending = [each for part in parts if not _is_alternatives(part) for each in _same(schema, part)]
    if any(has_unknown_target(schema, part) for part in parts):
        pending += [each for _, each in definitions(schema)]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping) and id(part) not in shared:
            shared.add(id(part))
            pending += _same(schema, part)
    for part in parts:
        names, required = part.get("properties"), part.get("required", ())
        is_declared = isinstance(names, Mapping) and all(name in names for name in required)
        if is_declared and id(part) not in shared and _CLOSABLE.issuperset(part):
            part["additionalProperties"] = False
    return json.dumps(schema)


def _same(root: dict[str, Any], part: Any) -> Iterator[Any]:
    """Yield the schemas inside a schema whose values other schemas describe, too."""
    yield from (each for key, _, each in subschemas(root, "", part) if key not in _OF_PARTS)


def _is_alternatives(part: dict[str, Any]) -> bool:
    """Return whether a schema only refers to other schemas, as alternatives or by ``$ref``."""
    keywords = part.keys() - ANNOTATIONS - {"discriminator", "type"}
    return len(keywords) == 1 and keywords <= {"$ref", "anyOf", "oneOf"}
