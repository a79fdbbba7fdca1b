"""Skeletons from JSON Schema.

Every answer of such a skeleton is valid against the schema. What a skeleton cannot say is an error
that names the keyword and where it is, as a JSON pointer.

An object's keys are known text, and so is what has a fixed shape below it. What has none (arrays of
any length, alternatives) is one value of which an automaton knows how it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..automata import Dfa, json_string
from ..errors import InvalidArgumentError
from .json_text import json_text
from .response import Skeleton
from .rows import Rows
from .schema import DEEPEST_SCHEMA, read_schema
from .schema.places import CannotSayError, cannot_say, pointer_part
from .schema.shapes import (
    Array,
    Known,
    Listed,
    Number,
    Object,
    Plain,
    Shape,
    Text,
    is_scalar,
)
from .schema.spelling import Speller
from .schema.strings import safe_patterns
from .spans import SkeletonSpan

__all__ = ["DEEPEST_SCHEMA", "Said", "said", "skeleton_spans"]

_Leaf = TypeVar("_Leaf", bound=Shape)

MOST_READINGS = 4
"""How often a schema is read, each time without the fields that were too much the time before."""


MOST_TOO_LARGE = 8
"""The most fields that are found to be too much in one reading."""


@dataclass(frozen=True)
class Said:
    """What a skeleton says of a schema.

    Attributes
    ----------
    spans : tuple of SkeletonSpan
    left_out : tuple of str
        What is not written though the schema has it, where a skeleton cannot say it: the place, and
        why.
    """

    spans: tuple[SkeletonSpan, ...]
    left_out: tuple[str, ...] = ()


def skeleton_spans(schema: Any) -> tuple[SkeletonSpan, ...]:
    """Return the spans of a skeleton for a schema.

    Parameters
    ----------
    schema
        A JSON Schema, as Python data. Understood are

        - ``$ref`` to what is in the same schema (``#``, ``#/$defs/...``), beside other keywords
          too; a value that may contain values of its own kind does so up to 2 deep;
        - ``allOf``; ``anyOf``; ``oneOf``, ``not`` and ``if`` where what is written can be kept from
          what it must not be: by a value of a choice, a type, a string's pattern, a field that need
          not be there;
        - ``enum`` and ``const`` of any values, one ``type`` or several;
        - objects: ``properties``, all of which are written, in their order, unless nothing is valid
          for one that is not ``required``; no others are added. Without ``properties``: names as
          ``propertyNames`` or the first of ``patternProperties`` has them, values as all of these
          or ``additionalProperties`` have them. ``minProperties``, as far as what is written
          complies; ``maxProperties``, ``dependentRequired`` and ``dependentSchemas``, without
          fields that cannot be there then;
        - arrays: ``prefixItems``, all of which are written, and no others; ``items``, ``minItems``
          and ``maxItems``, up to 64 counted items (16 of arrays or objects); ``uniqueItems`` of
          an enum's values, which come in its order; of others one item is written at most;
        - strings: ``pattern`` (for the whole string, in the syntax of
          :mod:`eliza_ffi.automata.regex_syntax`), ``minLength``, ``maxLength``, and ``format`` of
          ``date``, ``time``, ``date-time``, ``duration``, ``uuid``, ``email`` and ``ipv4``; with
          any of these no character is written that would need an escape, and no more than 1,000
          if there is a limit;
        - numbers: ``minimum``, ``maximum``, ``exclusiveMinimum``, ``exclusiveMaximum``, and
          ``multipleOf`` a whole number up to 1,000 or a decimal such as 0.01 that divides 1. With
          any of these they are written without an exponent and with at most 15 digits that count;
          multiples as whole numbers.

        Keywords for one type alone mean that type. A schema that says nothing of types is any
        value, nested up to 16 deep where its place is known, up to 2 deep inside what is not:
        arrays of any length, choices of types and of objects, and objects of any names. Keywords
        that restrict nothing or that the standard does not know are passed over. All others cannot
        be said: a field that is not ``required``, or one of several alternatives, is then left out
        (:attr:`Skeleton.left_out` has the reasons), anything else is refused.

    Raises
    ------
    InvalidArgumentError
        If something else restricts a value, nothing that can be written is valid, the schema is
        nested deeper than 32, comes to more than 10,000 schemas with its references written out,
        or to automata of more than 8,192 states.
    """
    return said(schema).spans


def said(schema: Any) -> Said:
    """Return the spans of a skeleton for a schema, and what they leave out of it.

    Raises
    ------
    InvalidArgumentError
        As :func:`skeleton_spans` does.
    """
    too_large: dict[str, CannotSayError] = {}
    for _ in range(MOST_READINGS):
        read = read_schema(schema, too_large)
        spans = _Spans(read.optional)
        laid_out = tuple(_merged(spans.of(read.shape, "", None)))
        if not spans.too_large:
            return Said(laid_out, read.left_out)
        too_large.update(spans.too_large)
    raise next(iter(spans.too_large.values()))


class _Spans:
    """Lays a shape out as spans.

    Parameters
    ----------
    optional
        Where the fields are that need not be written.

    Attributes
    ----------
    too_large : dict
        Those of them that are too much for an automaton, and the errors that say so. The spans are
        of no use where there are any.
    """

    def __init__(self, optional: Collection[str]) -> None:
        self._optional = optional
        self._speller = Speller()
        self.too_large: dict[str, CannotSayError] = {}

    def of(self, shape: Shape, at: str, key: str | None) -> Iterable[SkeletonSpan]:
        """Yield the spans of a shape; `at` and `key` tell where it stands."""
        if isinstance(shape, Known):
            yield _literal(shape.text)
        elif isinstance(shape, Listed):
            yield SkeletonSpan("enum", key, enum_values=shape.values)
        elif isinstance(shape, Plain):
            yield SkeletonSpan(shape.kind, key)
        elif isinstance(shape, Number):
            yield SkeletonSpan(shape.kind, key, dfa=shape.dfa)
        elif isinstance(shape, Text):
            yield _literal('"')
            yield self._string(shape, at, key)
            yield _literal('"')
        elif isinstance(shape, Object):
            yield from self._row("{}", at, key, shape.fields)
        elif isinstance(shape, Array) and _is_fixed(shape):
            items = [
                (i, shape.first[i] if i < len(shape.first) else shape.rest)
                for i in range(shape.fewest)
            ]
            yield from self._row("[]", at, key, items)
        else:
            dfa = self._in_place(at, self._speller.dfa, shape)
            yield SkeletonSpan("pattern", key, dfa=dfa, rows=_rows(shape))

    def _row(
        self, brackets: str, at: str, key: str | None, parts: Iterable[tuple[Any, Any]]
    ) -> Iterable[SkeletonSpan]:
        known = brackets[0]
        for name, inner in parts:
            is_field = isinstance(name, str)
            yield _literal(known + (f"{json_text(name)}:" if is_field else ""))
            inner_at = f"{at}/properties/{pointer_part(name)}" if is_field else f"{at}/items"
            yield from self.of(inner, inner_at, str(name) if key is None else f"{key}.{name}")
            known = ","
        yield _literal(brackets[1] if known == "," else brackets)

    def _string(self, text: Text, at: str, key: str | None) -> SkeletonSpan:
        is_plain = text == Text(text.patterns) and len(text.patterns) == 1
        if is_plain and not safe_patterns(text.patterns):
            return SkeletonSpan("pattern", key, pattern=text.patterns[0])
        return SkeletonSpan("pattern", key, dfa=self._in_place(at, self._speller.body, text))

    def _in_place(self, at: str, made: Callable[[_Leaf], Dfa], shape: _Leaf) -> Dfa:
        try:
            return made(shape)
        except InvalidArgumentError as error:
            refused = cannot_say(at, str(error))
            while at not in self._optional:
                if not at:
                    raise refused from None
                at = at.rpartition("/")[0]
            if len(self.too_large) >= MOST_TOO_LARGE:
                raise refused from None
            self.too_large[at] = refused
            return json_string()


def _rows(shape: Shape) -> Rows | None:
    """Return how an array is written item by item, if all its items are one kind of object."""
    if not isinstance(shape, Array) or not isinstance(shape.rest, Object) or shape.first:
        return None
    if shape.most == 0:
        return None
    try:
        spans = tuple(_merged(_Spans(()).of(shape.rest, "", None)))
        item = Skeleton(spans).placed
    except InvalidArgumentError:  # where the parts alone are too much
        return None
    return None if item[0].is_literal else Rows(item, shape.fewest, shape.most)


def _is_fixed(array: Array) -> bool:
    """Return whether an array has a known number of items, some of which have parts."""
    items = [*array.first, *([] if array.rest is None else [array.rest])]
    return array.fewest == array.most and not all(map(is_scalar, items))


def _literal(text: str) -> SkeletonSpan:
    return SkeletonSpan("literal", value=text)


def _merged(spans: Iterable[SkeletonSpan]) -> Iterable[SkeletonSpan]:
    """Join literals that stand side by side."""
    known = ""
    for span in spans:
        if span.kind == "literal":
            known += span.value or ""
            continue
        if known:
            yield _literal(known)
            known = ""
        yield span
    if known:
        yield _literal(known)
