"""References inside a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from .places import Part, Place, cannot_say, error_at, shown

__all__ = ["MOST_REPEATED", "find"]

MOST_REPEATED = 2
"""How deep a value may contain values of its own kind, where a schema refers to itself."""


def find(root: Any, reference: Any, place: Place) -> Part | None:
    """Return what a ``$ref`` refers to, or None if that contains itself once more than it may.

    Raises
    ------
    InvalidArgumentError
        If it is not inside the schema.
    """
    if not isinstance(reference, str):
        raise error_at(place.at, f"$ref must be a string, not {shown(reference)}")
    base, _, fragment = reference.partition("#")
    pointer = unquote(fragment)
    is_local = not base or (isinstance(root, Mapping) and base == _own_name(root))
    if not is_local or place.is_foreign or (pointer and not pointer.startswith("/")):
        raise cannot_say(
            place.at,
            f"$ref {shown(reference)} is not supported: only those from # to what is in the same "
            f"schema are",
        )
    found = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list | tuple) and name.isascii() and name.isdigit():
            if len(name) > 9 or int(name) >= len(found):
                raise error_at(place.at, f"$ref {shown(reference)} refers to nothing")
            found = found[int(name)]
        else:
            raise error_at(place.at, f"$ref {shown(reference)} refers to nothing")
    if place.inside.count(pointer) > MOST_REPEATED:
        return None
    return Part(found, replace(place, at=pointer, inside=(*place.inside, pointer)))


def _own_name(root: Mapping[str, Any]) -> str | None:
    name = root.get("$id", root.get("id"))
    return name.partition("#")[0] if isinstance(name, str) else None
