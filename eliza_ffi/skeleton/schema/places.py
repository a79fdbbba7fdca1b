"""Places in a schema, as JSON pointers, and errors that name them."""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidArgumentError

__all__ = ["CannotSayError", "Part", "Place", "cannot_say", "error_at", "pointer_part", "shown"]


class CannotSayError(InvalidArgumentError):
    """A schema demands what a skeleton cannot say; what need not be written may be left out."""


@dataclass(frozen=True)
class Place:
    """Where a schema stands.

    Attributes
    ----------
    at : str
        A JSON pointer, empty for the whole schema.
    depth : int
        How many schemas it is inside of.
    inside : tuple of str
        The pointers of references that are being written out.
    is_foreign : bool
        Whether a schema around it has an ``$id`` of its own, from which references count.
    scopes : tuple of str
        The pointers of schemas with ``unevaluatedProperties`` that it is a part of, and that are
        about the same value.
    """

    at: str = ""
    depth: int = 0
    inside: tuple[str, ...] = ("",)
    is_foreign: bool = False
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Part:
    """A schema and its place."""

    schema: Any
    place: Place = Place()

    def within(self, path: str, schema: Any) -> Part:
        """Return a schema inside this one that holds for what is inside the value."""
        inside = self.option(path, schema)
        return Part(schema, replace(inside.place, scopes=()))

    def option(self, path: str, schema: Any) -> Part:
        """Return a schema inside this one that may hold for the same value."""
        place = replace(self.place, at=f"{self.place.at}/{path}", depth=self.place.depth + 1)
        return Part(schema, place)

    def beside(self, path: str, schema: Any) -> Part:
        """Return a schema that holds for the same value."""
        return Part(schema, replace(self.place, at=f"{self.place.at}/{path}"))


def pointer_part(name: object) -> str:
    """Return a name as it stands in a JSON pointer."""
    escaped = str(name).replace("~", "~0").replace("/", "~1")
    return re.sub("[\ud800-\udfff]", "\ufffd", escaped)


def error_at(at: str, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"JSON schema at #{at}: {text}")


def cannot_say(at: str, text: str) -> CannotSayError:
    return CannotSayError(str(error_at(at, text)))


def shown(value: Any) -> str:
    """Return a short text of any value."""
    if isinstance(value, str):
        return f"{value!r:.80}"
    try:
        return reprlib.repr(value)[:80]
    except ValueError:  # of numbers that Python does not write out
        return "a number of thousands of digits"
