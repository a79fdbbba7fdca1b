"""Forbid properties that a tool's schema does not name, where that cannot exclude its answers.

A schema without ``additionalProperties`` allows other properties. Tool definitions rarely intend
that, and small models would write properties without end.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..structured.schema import ANNOTATIONS, reference_target

__all__ = ["closed_objects"]

_CLOSABLE = ANNOTATIONS | {"type", "properties", "required", "minProperties", "maxProperties"}
_BY_NAME = frozenset(("$defs", "definitions", "patternProperties", "properties"))
_OF_PARTS = frozenset(("additionalProperties", "items", "prefixItems")) | _BY_NAME
_ALTERNATIVES = frozenset(("anyOf", "oneOf"))
_DATA = frozenset(("const", "default", "enum", "examples"))


@functools.lru_cache(maxsize=128)
def closed_objects(schema_text: str) -> str:
    """Close the objects of a schema that no other schema describes, and return it as JSON.

    Several schemas describe an object if it has ``properties`` beside ``anyOf``, ``oneOf`` or
    ``$ref``, or keywords such as ``allOf``, ``if`` and ``dependentSchemas``. Then none of them may
    forbid the properties of the others.

    Parameters
    ----------
    schema_text
        The schema as :func:`.limits.checked_schema` returns it.
    """
    schema = json.loads(schema_text)
    shared: set[int] = set()
    for reference in _shared_references(schema, True):
        _add_same_object(schema, reference_target(schema, reference), shared)
    return json.dumps(_closed(schema, True, shared))


def _is_alone(part: Mapping[str, Any], keyword: str, is_alone: bool) -> bool:
    """Return whether a schema under a keyword is the only one that describes its value."""
    if keyword in _ALTERNATIVES:
        return is_alone and part.keys() - ANNOTATIONS - {"discriminator", "type"} == {keyword}
    return keyword in _OF_PARTS


def _shared_references(part: Any, is_alone: bool) -> Iterator[str]:
    """Yield the references to schemas that are not the only ones for their values."""
    if isinstance(part, list):
        for each in part:
            yield from _shared_references(each, is_alone)
    elif isinstance(part, Mapping):
        reference = part.get("$ref")
        has_others = not ANNOTATIONS.issuperset(part.keys() - {"$ref"})
        if isinstance(reference, str) and (has_others or not is_alone):
            yield reference
        for keyword in part.keys() - _DATA:
            alone, value = _is_alone(part, keyword, is_alone), part[keyword]
            named = keyword in _BY_NAME and isinstance(value, Mapping)
            yield from _shared_references([*value.values()] if named else value, alone)


def _add_same_object(root: Mapping[str, Any], part: Any, found: set[int]) -> None:
    """Add the identities of a schema and of all other schemas for the same value."""
    if isinstance(part, list):
        for each in part:
            _add_same_object(root, each, found)
    elif isinstance(part, Mapping) and id(part) not in found:
        found.add(id(part))
        if isinstance(reference := part.get("$ref"), str):
            _add_same_object(root, reference_target(root, reference), found)
        for keyword in part.keys() - _DATA - _OF_PARTS:
            _add_same_object(root, part[keyword], found)


def _closed(part: Any, is_alone: bool, shared: set[int]) -> Any:
    if isinstance(part, list):
        return [_closed(each, is_alone, shared) for each in part]
    if not isinstance(part, Mapping):
        return part
    is_alone = is_alone and id(part) not in shared
    made = dict(part)
    for keyword in part.keys() - _DATA:
        alone, value = _is_alone(part, keyword, is_alone), part[keyword]
        if keyword in _BY_NAME and isinstance(value, Mapping):
            made[keyword] = {name: _closed(each, alone, shared) for name, each in value.items()}
        else:
            made[keyword] = _closed(value, alone, shared)
    names, required = part.get("properties"), part.get("required", ())
    is_declared = isinstance(names, Mapping) and all(name in names for name in required)
    if is_alone and is_declared and _CLOSABLE.issuperset(part):
        made["additionalProperties"] = False
    return made
