"""Forbid properties that a tool's schema does not name, where that cannot exclude its answers.

A schema without ``additionalProperties`` allows other properties. Tool definitions rarely intend
that, and small models would write properties without end.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..structured.schema import (
    ANNOTATIONS,
    definitions,
    has_unknown_target,
    schema_parts,
    subschemas,
)

_CLOSABLE = ANNOTATIONS | {"type", "properties", "required", "minProperties", "maxProperties"}
_OF_PARTS = frozenset(
    ("additionalProperties", "items", "patternProperties", "prefixItems", "properties")
)
"""The keywords whose schemas are the only ones for their values."""


@functools.lru_cache(maxsize=128)
def closed_objects(schema_text: str) -> str:
    """Close the objects of a schema, given as JSON, that no other schema describes.

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
    """Yield the schemas inside a schema that are not for parts of its value."""
    yield from (each for key, _, each in subschemas(root, "", part) if key not in _OF_PARTS)


def _is_alternatives(part: dict[str, Any]) -> bool:
    """Return whether a schema says nothing itself except which other schemas may apply."""
    keywords = part.keys() - ANNOTATIONS - {"discriminator", "type"}
    return len(keywords) == 1 and keywords <= {"$ref", "anyOf", "oneOf"}
