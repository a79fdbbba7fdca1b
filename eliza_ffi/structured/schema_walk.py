"""Walk JSON Schemas: their parts, references and alternatives, and the values that they allow."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from .._lazy import lazy_property
from ..errors import InvalidArgumentError
from .compile_time import check_time
from .json_text import json_parts, pointer_part
from .number_values import list_few_numbers
from .patterns import strings_of

JSON_TYPES = ("object", "array", "null", "boolean", "number", "string")
"""All JSON types; integers are numbers."""

MAX_DEPTH = 20  # levels of references and alternatives

MAX_FORMS = 16
"""The maximum number of alternatives of an object that are kept apart."""

_IN_ONE = {
    *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
}
_IN_LIST = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_BY_NAME = {"dependencies", "dependentSchemas", "patternProperties", "properties"}
DEFINITIONS = ("$defs", "definitions")
_IDS = ("$id", "id")
_NAMES = (*_IDS, "$anchor", "$dynamicAnchor")

_CLOSABLE = {"type", "properties", "required", "minProperties", "maxProperties"}
_OF_PARTS = {"additionalProperties", "items", "patternProperties", "prefixItems", "properties"}
"""The keywords whose schemas alone describe an item or a property."""

_OF_OBJECTS = {
    *("additionalProperties", "maxProperties", "minProperties", "patternProperties"),
    *("properties", "propertyNames", "required", "unevaluatedProperties"),
}
"""The keywords that only concern objects."""

OF_SAME_VALUE = {
    *("$ref", "allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not"),
    *("oneOf", "then"),
}
"""The keywords whose schemas describe the same value as the schema around them."""

_RULES = (
    _IN_ONE
    | _IN_LIST
    | _BY_NAME
    | _OF_OBJECTS
    | OF_SAME_VALUE
    | {
        *("$dynamicRef", "$recursiveRef", "const", "dependentRequired", "enum", "exclusiveMaximum"),
        *("exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength", "maximum"),
        *("minContains", "minItems", "minLength", "minimum", "multipleOf", "pattern", "type"),
        "uniqueItems",
    }
)
"""All keywords that restrict the values of a schema."""

Part = dict[str, Any]


class SchemaDocument:
    """A JSON Schema whose parts are found by keywords and by `references`. Parts may be changed
    meanwhile."""

    def __init__(self, root: Any, references: Sequence[str] = ("$ref",)) -> None:
        self.root = root
        self._references = references

    # ---- the parts of a schema -------------------------------------------------------------------

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield the schema and all subschemas that may apply to a value, with their JSON pointers.
        A definition is yielded where the first reference names it."""
        pending: list[tuple[str, Any]] = [("", self.root)]
        seen: set[str] = set()
        while pending:
            pointer, part = pending.pop()
            if pointer in seen or not isinstance(part, dict):
                continue
            seen.add(pointer)
            check_time()
            yield pointer, part
            pending += reversed([(at, inner) for _, at, inner in self.inner(pointer, part)])

    def inner(self, pointer: str, part: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """Yield the schemas directly inside a schema, and the targets of its references: the
        keyword, the JSON pointer and the schema."""
        for key, value in part.items():
            listed: Iterable[tuple[str, Any]] = ()
            if key in self._references and isinstance(value, str):
                listed = self.targets(value)
            elif key in _IN_LIST and isinstance(value, list):
                listed = ((f"{pointer}/{key}/{i}", inner) for i, inner in enumerate(value))
            elif key in _BY_NAME and isinstance(value, dict):
                names = value.items()
                listed = ((f"{pointer}/{key}/{pointer_part(name)}", each) for name, each in names)
            elif key in _IN_ONE:
                listed = [(f"{pointer}/{key}", value)]
            yield from ((key, *each) for each in listed)

    def targets(self, reference: str) -> list[tuple[str, Any]]:
        """Return all schemas that a reference may name, with their JSON pointers. There may be
        several, because the base of its URI is not known here."""
        uri, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return [(at, part) for _, anchor, at, part in self._named_parts if anchor == fragment]
        roots = [(at, part) for own, _, at, part in self._named_parts if _may_name(uri, own)]
        found = ((at + fragment, target_at(part, fragment)) for at, part in roots)
        return [(pointer, target) for pointer, target in found if target is not None]

    def target(self, reference: Any) -> Any:
        """Return the first schema that a reference may name; None if there is none."""
        found = self.targets(reference) if isinstance(reference, str) else ()
        return next((part for _, part in found), None)

    @lazy_property
    def _named_parts(self) -> list[tuple[str | None, str, str, Part]]:
        """The URIs and anchors in the schema, each with the JSON pointer and the part it names. An
        anchor without a URI has None in its place."""
        named: list[tuple[str | None, str, str, Part]] = [("", "", "", self.root)]
        for pointer, part in json_parts(self.root):
            for key in _NAMES if isinstance(part, dict) else ():
                if isinstance(name := part.get(key), str):
                    uri, _, anchor = name.partition("#") if key in _IDS else (None, "", name)
                    named.append((uri, anchor, pointer, part))
        return named

    # ---- the values that a schema allows ---------------------------------------------------------

    def alternatives(
        self, schema: Any, depth: int = 0, seen: set[str] | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the simple schemas that a schema consists of. Each reference is followed only once,
        because their number may grow exponentially; `seen` has those that have been followed."""
        seen = set() if seen is None else seen
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            yield {}
            return
        if isinstance(schema.get("$ref"), str):
            if schema["$ref"] not in seen:
                seen.add(schema["$ref"])
                yield from self.alternatives(self.target(schema["$ref"]), depth + 1, seen)
            return
        lists = (schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf"))
        branches = [branch for listed in lists if isinstance(listed, list) for branch in listed]
        if not branches or any(key in schema for key in ("type", "enum", "const", "properties")):
            yield schema
        for branch in branches:
            yield from self.alternatives(branch, depth + 1, seen)

    def types(self, schema: Any) -> set[str]:
        allowed: set[str] = set()
        for each in self.alternatives(schema):
            if (values := listed_values(each)) is not None:
                allowed.update(map(json_type, values))
            elif "type" in each:
                allowed.update("number" if kind == "integer" else kind for kind in types_of(each))
            elif "properties" in each:
                allowed.add("object")
            else:
                return set(JSON_TYPES)
        return allowed & set(JSON_TYPES)

    def values(self, schema: Any) -> list[Any] | None:
        """Return the values of ``enum`` and ``const``; None if the schema allows other values."""
        values: list[Any] = []
        for each in self.alternatives(schema):
            if (listed := listed_values(each)) is None:
                return None
            values += listed
        return values

    def inside(self, schema: Any, key: str | int) -> Any:
        """Return the schema of a member of an object, or of an item of an array."""
        is_member = isinstance(key, str)
        first, others = (
            ("properties", "additionalProperties") if is_member else ("prefixItems", "items")
        )
        found = []
        for each in self.alternatives(schema):
            known = each.get(first, ())
            if key in (range(len(known)) if isinstance(known, list) else known):
                found.append(known[key])
            elif others in each and not (is_member and isinstance(each[others], bool)):
                found.append(each[others])
        return {"anyOf": found} if found else {}

    def object_forms(
        self, schema: Any, known: dict[int, tuple[ObjectForm, ...]] | None = None
    ) -> tuple[ObjectForm, ...]:
        """Return the alternatives of an object; empty if no value of the schema is an object. If
        they are too many, one form requires what all of them require."""
        known = {} if known is None else known
        if not isinstance(schema, Mapping):
            return (ObjectForm((), frozenset()),)
        if id(schema) in known:
            return known[id(schema)]
        known[id(schema)] = ()  # a schema that refers to itself adds nothing
        if "type" in schema and "object" not in types_of(schema):
            return ()
        names, required = schema.get("properties", ()), schema.get("required", ())
        forms: tuple[ObjectForm, ...] = (ObjectForm(tuple(names), frozenset(required)),)
        groups = [[each] for each in schema.get("allOf", ())]
        groups += [schema[keyword] for keyword in ("anyOf", "oneOf") if keyword in schema]
        if isinstance(schema.get("$ref"), str):
            groups.append([self.target(schema["$ref"])])
        for group in groups:
            others = [form for each in group for form in self.object_forms(each, known)]
            forms = tuple(dict.fromkeys(form.and_(other) for form in forms for other in others))
            if len(forms) > MAX_FORMS:
                names = dict.fromkeys(name for form in forms for name in form.names)
                required = frozenset.intersection(*(form.required for form in forms))
                forms = (ObjectForm(tuple(names), required),)
        known[id(schema)] = forms
        return forms


@dataclass(frozen=True)
class ObjectForm:
    """The properties of an object in one of its alternatives, in the order of the schema."""

    names: tuple[str, ...]
    required: frozenset[str]

    def and_(self, other: ObjectForm) -> ObjectForm:
        names = dict.fromkeys((*self.names, *other.names))
        return ObjectForm(tuple(names), self.required | other.required)


def rules_of(part: Mapping[str, Any]) -> set[str]:
    """Return the keywords of a schema that restrict its values. It may have others."""
    return _RULES.intersection(part)


def alternatives_of(part: Mapping[str, Any]) -> Sequence[Any]:
    """Return the alternatives of a schema without other rules. A schema that is only a reference is
    its own alternative."""
    keywords = rules_of(part) - {"type"}
    if not part.get("properties"):
        keywords -= {"properties"}
    if len(keywords) != 1 or not keywords <= {"$ref", "anyOf", "oneOf"}:
        return ()
    (keyword,) = keywords
    alternatives: Sequence[Any] = [part] if keyword == "$ref" else part[keyword]
    return alternatives


def target_at(root: Any, pointer: str) -> Any:
    """Return the part of JSON data at a JSON pointer, or None if there is none."""
    part = root
    for name in pointer.split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and key in part:
            part = part[key]
        elif isinstance(part, list) and key.isdecimal() and len(key) < 8 and int(key) < len(part):
            part = part[int(key)]
        else:
            return None
    return part


def _may_name(uri: str, own: str | None) -> bool:
    """Return whether a URI may name the schema with another URI. Both may be relative."""
    if own is None:
        return False
    if "://" in uri and "://" in own:
        return uri == own
    name = _end_of_path(uri)
    return not name or name == _end_of_path(own)


def _end_of_path(uri: str) -> str:
    """Return the last part of a URI's path; "" = it depends on the base."""
    name = unquote(uri).rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..") else name


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


def types_of(part: Mapping[str, Any]) -> list[str]:
    types = part.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def listed_values(part: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the values of a schema's ``enum`` or ``const``; None if it has neither."""
    values: Sequence[Any] | None = part.get("enum", [part["const"]] if "const" in part else None)
    return values


# ---- changes to a schema -----------------------------------------------------------------------


def is_impossible(document: SchemaDocument) -> bool:
    """Return whether it is obvious that no value matches a schema, or that each one is endless."""
    return id(document.root) in _impossible(document, [document.root])


def forbid_impossible_parts(document: SchemaDocument) -> None:
    """Forbid all values where a part of a schema is impossible, which llguidance finds less
    often."""
    parts = [part for _, part in document.parts()]
    impossible = _impossible(document, parts)
    if id(document.root) not in impossible:
        for part in parts:
            if id(part) in impossible and "$ref" not in part:  # a target is changed itself
                part["enum"] = []


def _impossible(document: SchemaDocument, parts: list[Any]) -> set[int]:
    """Return the identities of the parts without a value, also among the parts that these need."""
    needs: dict[int, list[set[int]]] = {}
    pending = list(parts)
    while pending:
        part = pending.pop()
        if id(part) not in needs:
            lists = _needs(document, part)
            needs[id(part)] = [set(map(id, each)) for each in lists]
            pending += itertools.chain(*lists)
    impossible = set(needs)
    while found := [key for key in impossible if not any(map(impossible.issuperset, needs[key]))]:
        check_time()
        impossible.difference_update(found)
    return impossible


_BOUNDS = {
    **dict.fromkeys(("integer", "number"), ("minimum", "maximum")),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "string": ("minLength", "maxLength"),
}


def _needs(document: SchemaDocument, part: Any) -> list[list[Any]]:
    """Return lists of schemas: a value of `part` ends only if one of each list has such a value."""
    if not isinstance(part, Mapping):
        return [[]] if part is False else []
    if (values := listed_values(part)) is not None:
        return [] if values else [[]]
    needs = [part[key] for key in ("anyOf", "oneOf") if key in part]
    needs += [[each] for each in part.get("allOf", ())]
    if isinstance(part.get("$ref"), str):
        needs.append([document.target(part["$ref"])])
    kind = part.get("type")
    low, high = _BOUNDS.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
    if part.get(low, -math.inf) > part.get(high, math.inf):
        return [[]]
    if kind == "object" and "patternProperties" not in part:
        fields, others = part.get("properties", {}), part.get("additionalProperties", True)
        required = set(part.get("required", ()))
        most = min(part.get(high, math.inf), math.inf if others is not False else len(fields))
        if max(len(required), part.get(low, 0)) > most:
            return [[]]
        needs += [[fields.get(name, others)] for name in required]
    items = part.get("items", True)
    if kind == "array" and not isinstance(items, list):
        first, least = part.get("prefixItems", []), part.get("minItems", 0)
        needs += [[each] for n, each in enumerate(first) if n < least]
        needs += [[items]] if least > len(first) else []
    return needs


MAX_LISTED_NAMES = 256
"""A map whose names are one of at most this many is written as an object with these properties."""


def list_known_names(document: SchemaDocument) -> None:
    """Declare all properties of objects whose ``propertyNames``, which llguidance ignores, or
    patterns allow few names. Each declared property can be written only once."""
    for _, part in list(document.parts()):
        _list_names_of_patterns(part)
        schema = part.get("propertyNames", {})
        is_pattern = isinstance(schema, dict) and rules_of(schema) - {"type"} == {"pattern"}
        names = strings_of(schema["pattern"]) if is_pattern else document.values(schema)
        if names is None or len(names) > MAX_LISTED_NAMES or "patternProperties" in part:
            continue
        del part["propertyNames"]
        others = part.get("additionalProperties", True)
        if isinstance(others, dict) and others:  # one definition, because maps may contain maps
            known_parts = document.root.setdefault("$defs", {})
            key = f"value_of_map_{len(known_parts)}"
            while key in known_parts:
                key += "_"
            known_parts[key] = others
            others = {"$ref": f"#/$defs/{key}"}
        known = part.get("properties", {})
        listed = [name for name in dict.fromkeys(names) if isinstance(name, str)]
        part["properties"] = {name: known.get(name, others) for name in listed}
        part["additionalProperties"] = False


def _list_names_of_patterns(part: Part) -> None:
    named, known = part.get("patternProperties"), part.get("properties", {})
    if not isinstance(named, dict) or not isinstance(known, dict):
        return
    names = {pattern: strings_of(pattern) for pattern in named}
    schemas: dict[str, list[Any]] = {name: [schema] for name, schema in known.items()}
    for pattern, listed in names.items():
        for name in listed or ():
            schemas.setdefault(name, []).append(named[pattern])
    others = {pattern: named[pattern] for pattern, listed in names.items() if listed is None}
    if len(schemas) > max(MAX_LISTED_NAMES, len(known)) or 0 < len(named) == len(others):
        return
    part["properties"] = {
        name: each[0] if len(each) == 1 else {"allOf": each} for name, each in schemas.items()
    }
    del part["patternProperties"]
    if others:
        part["patternProperties"] = others


def prepare(document: SchemaDocument) -> None:
    """Change a schema, before it is compiled or planned, where llguidance would allow more."""
    list_known_names(document)
    limit_unique_items(document)
    forbid_impossible_parts(document)
    for _, part in document.parts():
        list_few_numbers(part)


def limit_unique_items(document: SchemaDocument) -> None:
    """Limit lists of different items to as many items as there are values."""
    for _, part in document.parts():
        if part.get("uniqueItems") is not True or "prefixItems" in part:
            continue
        items = part.get("items", {})
        kind = items.get("type") if isinstance(items, dict) else None
        values = [False, True] if kind == "boolean" else document.values(items)
        if values is not None:
            n = len({json.dumps(value, sort_keys=True) for value in values})
            part["maxItems"] = min(part.get("maxItems", n), n)


def may_repeat_names(schema: Any) -> bool:
    """Return whether llguidance could write a name twice in an object, as it may with undeclared
    names."""
    if not isinstance(schema, dict):
        return schema is True
    return any(_has_undeclared_names(part) for _, part in SchemaDocument(schema).parts())


def _has_undeclared_names(part: dict[str, Any]) -> bool:
    if listed_values(part) is not None:
        return False
    if "type" not in part and not _OF_OBJECTS.intersection(part):
        return not OF_SAME_VALUE.intersection(part)  # other parts describe the value
    if "type" in part and "object" not in types_of(part):
        return False
    return bool(part.get("additionalProperties") is not False or part.get("patternProperties"))


# ---- closed objects ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=128)
def closed_objects(schema_text: str) -> str:
    """Forbid undeclared properties of objects that only one part of a schema (as JSON) describes.
    Tool definitions rarely intend them, and small models would write properties without end."""
    document = SchemaDocument(json.loads(schema_text))
    parts = [part for _, part in document.parts()]
    shared: set[int] = set()  # the identities of schemas whose values others describe, too
    pending = [part for part in parts if not alternatives_of(part)]
    pending = [inner for part in pending for inner in _same(document, part)]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping) and id(part) not in shared:
            shared.add(id(part))
            pending += _same(document, part)
    for part in parts:
        names, required = part.get("properties"), part.get("required", ())
        is_declared = isinstance(names, Mapping) and all(name in names for name in required)
        if is_declared and id(part) not in shared and rules_of(part) <= _CLOSABLE:
            part["additionalProperties"] = False
    return json.dumps(document.root)


def _same(document: SchemaDocument, part: Mapping[str, Any]) -> Iterator[Any]:
    return (each for key, _, each in document.inner("", part) if key not in _OF_PARTS)
