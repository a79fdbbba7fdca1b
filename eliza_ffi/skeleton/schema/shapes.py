"""What a schema comes to: a tree of shapes, each a set of JSON texts without white space.

All that a shape can be written as is valid against the schema that it comes from. It may be less
than all that is valid: objects have their properties in one order, numbers one spelling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...automata import Dfa
from ..json_text import json_text, read_json
from ..spans import Scalar

__all__ = [
    "ANY",
    "Array",
    "Known",
    "Listed",
    "Map",
    "Never",
    "Number",
    "Object",
    "Plain",
    "Shape",
    "Text",
    "Union",
    "any_value",
    "choice",
    "is_scalar",
    "union",
]


@dataclass(frozen=True)
class Never:
    """Nothing, and why."""

    why: str


@dataclass(frozen=True)
class Known:
    """One value, as JSON spells it."""

    text: str


@dataclass(frozen=True)
class Listed:
    """One of several values without parts."""

    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Plain:
    """Any value of a kind that spans have: free-string, number, integer, boolean or free-json."""

    kind: str


@dataclass(frozen=True)
class Text:
    """A string in which no character needs an escape.

    Attributes
    ----------
    patterns : tuple of str
        All of which it matches, as a whole.
    fewest : int
        Characters.
    most : int or None
    unlike : tuple of str
        Strings that are not written.
    lacking : tuple of str
        Patterns that are not found in it.
    """

    patterns: tuple[str, ...]
    fewest: int = 0
    most: int | None = None
    unlike: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Number:
    """A number that an automaton accepts: of kind ``"number"`` or ``"integer"``."""

    kind: str
    dfa: Dfa


@dataclass(frozen=True)
class Object:
    """An object of exactly these fields, in this order."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Map:
    """An object of any number of fields, whose names and values have a shape each."""

    name: Shape
    value: Shape
    fewest: int = 0
    most: int | None = None


@dataclass(frozen=True)
class Array:
    """An array: the first items have shapes of their own, all others one."""

    first: tuple[Shape, ...]
    rest: Shape | None
    fewest: int = 0
    most: int | None = None
    is_distinct: bool = False
    """Whether no two items are the same. These are a choice's, and come in its order."""

    @property
    def sure(self) -> tuple[Shape, ...]:
        """The items that are written in any case."""
        n_rest = self.fewest - len(self.first)
        rest = () if self.rest is None else (self.rest,) * max(n_rest, 0)
        return (*self.first[: self.fewest], *rest)


@dataclass(frozen=True)
class Union:
    """Any of several shapes."""

    options: tuple[Shape, ...]


Shape = Never | Known | Listed | Plain | Text | Number | Object | Map | Array | Union

ANY = Plain("free-json")


def any_value(depth: int, *, only_object: bool = False) -> Shape:
    """Return the shape of any value with at most `depth` arrays and objects within each other."""
    scalars: tuple[Shape, ...] = (
        Plain("free-string"),
        Plain("number"),
        Listed((True, False, None)),
    )
    if depth == 0:
        return Union(scalars)
    inner = any_value(depth - 1)
    mapping = Map(Plain("free-string"), inner)
    return mapping if only_object else Union((*scalars, Array((), inner), mapping))


def is_scalar(shape: Shape) -> bool:
    """Return whether all values of a shape are without parts."""
    if isinstance(shape, Union):
        return all(map(is_scalar, shape.options))
    if isinstance(shape, Known):
        return shape.text[0] not in "{["
    return isinstance(shape, Listed | Text | Number) or (
        isinstance(shape, Plain) and shape.kind != "free-json"
    )


def choice(values: Iterable[Scalar]) -> Shape:
    """Return the shape of one of some values."""
    listed = tuple(values)
    return Known(json_text(listed[0])) if len(listed) == 1 else Listed(listed)


def union(shapes: Iterable[Shape], why: str) -> Shape:
    """Return the shape of any of some shapes; where there is none, nothing, and why."""
    possible = [shape for shape in shapes if not isinstance(shape, Never)]
    if len(possible) <= 1:
        return possible[0] if possible else Never(why)
    options: list[Shape] = []
    scalars: dict[str, Scalar] = {}
    for shape in possible:
        for each in shape.options if isinstance(shape, Union) else (shape,):
            if each == ANY:
                return ANY
            listed = _listed(each)
            if listed is None:
                if each not in options:
                    options.append(each)
            else:
                scalars.update((json_text(value), value) for value in listed)
    if scalars:
        options.append(choice(scalars.values()))
    return options[0] if len(options) == 1 else Union(tuple(options))


def _listed(shape: Shape) -> tuple[Scalar, ...] | None:
    """Return the values of a shape, if it has few and they are without parts."""
    if isinstance(shape, Listed):
        return shape.values
    if isinstance(shape, Plain) and shape.kind == "boolean":
        return (True, False)
    if isinstance(shape, Known) and is_scalar(shape):
        value: Scalar = read_json(shape.text)
        return (value,)
    return None
