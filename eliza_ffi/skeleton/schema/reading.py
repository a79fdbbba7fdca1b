"""From a schema to a shape."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidArgumentError
from ..json_text import check_unicode, json_text
from .judging import VALUES_OF_A_PART, allows, excludes
from .numbers import number_shape
from .places import Part, error_at, pointer_part
from .rules import COST_OF_COPY, DEEPEST_SCHEMA, KINDS, Gatherer, Rules
from .shapes import (
    ANY,
    Array,
    Known,
    Listed,
    Map,
    Never,
    Object,
    Plain,
    Shape,
    Text,
    any_value,
    choice,
    is_scalar,
    union,
)
from .spelling import DEEPEST_VALUE, LONGEST_TEXT
from .strings import FORMATS, body_dfa

__all__ = ["DEEPEST_SCHEMA", "MOST_ITEMS", "read_schema"]

MOST_ITEMS = 64
"""The most items without parts that are counted."""

PAIRS_OF_A_PART = 64
"""How many pairs of alternatives are compared in the time of a schema."""

MOST_LARGE_ITEMS = 16
"""The most items with parts that are counted, unless there must be more."""


def read_schema(schema: Any) -> Shape:
    """Return the shape of a schema: all that it can be written as is valid.

    Raises
    ------
    InvalidArgumentError
        If the schema demands what is not understood, or nothing that can be written is valid.
    """
    shape = _SchemaReader(schema).shape((Part(schema),), "")
    if isinstance(shape, Never):
        raise error_at("", f"nothing that can be written is valid: {shape.why}")
    return shape


class _SchemaReader:
    def __init__(self, root: Any) -> None:
        self._gatherer = Gatherer(root)
        self._spent_on: set[object] = set()

    def shape(self, parts: tuple[Part, ...], at: str) -> Shape:
        """Return the shape of the values that are valid against some schemas together."""
        return self._shape_of(self._gatherer.gathered(parts, at))

    def _shape_of(self, rules: Rules) -> Shape:
        if rules.never is not None:
            return Never(rules.never)
        shape = self._union(rules) if rules.unions else self._single(rules)
        for part in rules.nots:
            if not excludes(self._gatherer, self._gatherer.gathered((part,), ""), shape):
                raise error_at(
                    part.place.at, "not is supported only where nothing that is written could be it"
                )
        return shape

    def _spend_once(self, made: object, n_states: int) -> None:
        """Count the states of an automaton as parts, the first time that it is made."""
        if made not in self._spent_on:
            self._spent_on.add(made)
            self._gatherer.spend(n_states)

    def _union(self, rules: Rules) -> Shape:
        rest = rules.copied()
        keyword, options = rest.unions.pop(0)
        shapes = []
        for option in options:
            self._gatherer.spend(COST_OF_COPY)
            both = rest.copied()
            both.at = option.place.at
            self._gatherer.gather(both, (option,))
            shapes.append(self._shape_of(both))
        if keyword == "oneOf":
            self._check_exclusive(shapes, options, rules.at)
        nothing = next((shape.why for shape in shapes if isinstance(shape, Never)), "")
        return union(shapes, f"no option of {keyword} is left: {nothing}")

    def _check_exclusive(self, shapes: list[Shape], options: list[Part], at: str) -> None:
        self._gatherer.spend(len(options) ** 2 // PAIRS_OF_A_PART)
        others = [self._gatherer.gathered((option,), option.place.at) for option in options]
        for i, shape in enumerate(shapes):
            for j, rules in enumerate(others):
                if i != j and not excludes(self._gatherer, rules, shape):
                    raise error_at(
                        at,
                        f"what is written for option {i} of oneOf may be valid against option {j} "
                        f"too, where only one may be; anyOf is supported",
                    )

    def _single(self, rules: Rules) -> Shape:
        if rules.values is not None:
            return self._listed(rules, list(rules.values.values()))
        rules.check_refused(None)
        kinds = rules.kinds
        if kinds is None:
            # Keywords for one type say nothing of others; they tell which is meant.
            kinds = frozenset([kind for kind in KINDS if kind in rules.hints][:1])
            if not kinds:
                return ANY
        if kinds.issuperset(KINDS) and not rules.hints:
            return ANY
        shapes = [
            self._of_kind(kind, rules)
            for kind in KINDS
            if kind in kinds and not (kind == "integer" and "number" in kinds)
        ]
        why = next((shape.why for shape in shapes if isinstance(shape, Never)), "")
        return union(shapes, why)

    def _listed(self, rules: Rules, values: list[Any]) -> Shape:
        rest = rules.copied()
        rest.values = None
        self._gatherer.spend(len(values) // VALUES_OF_A_PART)
        verdicts = [allows(self._gatherer, rest, value) for value in values]
        kept = [value for value, verdict in zip(values, verdicts, strict=True) if verdict]
        if not kept:
            if None in verdicts:
                raise error_at(
                    rules.at,
                    "what is said beside enum or const cannot be held against their values",
                )
            return Never(f"#{rules.at}: what else is said allows no value of enum or const")
        if all(not isinstance(value, dict | list | tuple) for value in kept):
            return choice(kept)
        return union((Known(json_text(value)) for value in kept), "")

    def _of_kind(self, kind: str, rules: Rules) -> Shape:
        if kind in ("boolean", "null"):
            return Plain("boolean") if kind == "boolean" else Known("null")
        rules.check_refused("number" if kind == "integer" else kind)
        if kind == "object":
            return self._object(rules)
        if kind == "array":
            return self._array(rules)
        if kind == "string":
            return self._string(rules)
        self._spend_once((rules.bounds.least, rules.bounds.most), 3 * rules.bounds.n_digits)
        shape = number_shape(rules.bounds, kind == "integer")
        return Never(f"#{rules.at}: {shape.why}") if isinstance(shape, Never) else shape

    def _string(self, rules: Rules) -> Shape:
        fewest, most = rules.fewest.get("string", 0), rules.most.get("string")
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: maxLength is {most}, below minLength, {fewest}")
        formats = tuple(FORMATS[name] for name in rules.formats)
        if not (rules.patterns or formats or fewest or most is not None):
            return Plain("free-string")
        for patterns in ((*rules.patterns, *formats), tuple(rules.patterns)):
            text = Text(patterns, fewest, most)
            try:
                n_states = body_dfa(text, LONGEST_TEXT).n_states
            except InvalidArgumentError as error:
                # A format is an annotation: what contradicts it is believed.
                if not formats or patterns == tuple(rules.patterns):
                    raise error_at(rules.at, str(error)) from None
            else:
                break
        self._spend_once(text, n_states)
        return text

    def _array(self, rules: Rules) -> Shape:
        fewest, most = rules.fewest.get("array", 0), rules.most.get("array")
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: maxItems is {most}, below minItems, {fewest}")
        if fewest > MOST_ITEMS:
            raise error_at(rules.at, f"minItems must be at most {MOST_ITEMS}, not {fewest}")
        n_first = max((len(each.first) for each in rules.arrays), default=0)
        first: list[Shape] = []
        for i in range(n_first if most is None else min(n_first, most)):
            inner = self._item(rules, i)
            if isinstance(inner, Never):
                most = i
                break
            first.append(inner)
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: the item {most} cannot be written")
        if first:
            # As with properties, all are written, and no others.
            fewest = most = max(fewest, len(first))
        rest = None
        if most is None or most > len(first):
            rest = self._item(rules, max(n_first, len(first)))
            if isinstance(rest, Never):
                if fewest > len(first):
                    return Never(rest.why)
                rest, most = None, len(first)
            elif most is not None:
                counted = MOST_ITEMS if is_scalar(rest) else MOST_LARGE_ITEMS
                most = min(most, max(fewest, counted))
        return self._distinct(rules, Array(tuple(first), rest, fewest, most))

    def _item(self, rules: Rules, i: int) -> Shape:
        parts = tuple(part for each in rules.arrays for part in each.parts_of(i))
        return self.shape(parts, f"{rules.at}/items")

    def _distinct(self, rules: Rules, array: Array) -> Shape:
        most = array.most
        if not rules.is_distinct or (most is not None and most <= 1) or array.rest is None:
            if rules.is_distinct and len(array.first) > 1:
                raise error_at(rules.at, "uniqueItems is not supported for arrays of listed items")
            return array
        rest = array.rest
        if isinstance(rest, Plain) and rest.kind == "boolean":
            rest = Listed((True, False))
        if isinstance(rest, Known):
            if array.fewest > 1:
                return Never(f"#{rules.at}: all items are the same")
            return Array((), rest, array.fewest, 1)
        if array.first or not isinstance(rest, Listed):
            raise error_at(rules.at, "uniqueItems is supported only for items of an enum")
        if array.fewest > len(rest.values):
            return Never(f"#{rules.at}: there are fewer than {array.fewest} different items")
        return Array((), rest, array.fewest, most, is_distinct=True)

    # ---- objects -----------------------------------------------------------------------------

    def _object(self, rules: Rules) -> Shape:
        names = dict.fromkeys(name for each in rules.objects for name in each.properties)
        names.update(rules.required)
        if not names and not any(each.is_listed for each in rules.objects):
            return self._map(rules)
        fields = []
        for name in names:
            inner = self._field(rules, name)
            if not isinstance(inner, Never):
                fields.append((name, inner))
            elif name in rules.required:
                return Never(inner.why)
        why = self._misfit(rules, [name for name, _ in fields])
        return Object(tuple(fields)) if why is None else Never(f"#{rules.at}: {why}")

    def _field(self, rules: Rules, name: str) -> Shape:
        at = f"{rules.at}/properties/{pointer_part(name)}"
        try:
            check_unicode(name, "the name")
        except InvalidArgumentError as error:
            raise error_at(at, str(error)) from None
        parts: list[Part] = []
        for each in rules.objects:
            found = each.parts_of(name)
            if found is None:
                raise error_at(
                    rules.at,
                    "patternProperties beside properties: only names that begin with a "
                    "text (^text) are supported",
                )
            parts += found
            if each.names is not None:
                named = self._gatherer.gathered((each.names,), each.names.place.at)
                if not allows(self._gatherer, named, name):
                    return Never(f"#{at}: the name is not among propertyNames")
        if not any(name in each.properties for each in rules.objects):
            parts += rules.unevaluated
        return self.shape(tuple(parts), at)

    def _misfit(self, rules: Rules, names: list[str]) -> str | None:
        """Return why an object of exactly these fields is not valid, if it is not."""
        fewest, most = rules.fewest.get("object", 0), rules.most.get("object", len(names))
        if not fewest <= len(names) <= most:
            bound = (
                f"minProperties is {fewest}" if len(names) < fewest else f"maxProperties is {most}"
            )
            return f"{bound}, but {len(names)} properties are written"
        for name, needed in rules.dependent:
            for other in needed if name in names else ():
                if other not in names:
                    return f"{name!r:.80} needs {other!r:.80}, which is not among the properties"
        return None

    def _map(self, rules: Rules) -> Shape:
        """Return the shape of an object whose names are not known."""
        patterns = [(name, part) for each in rules.objects for name, part in each.patterns.items()]
        if len(patterns) > 1:
            raise error_at(rules.at, "more than one pattern of patternProperties is not supported")
        values = [part for _, part in patterns]
        if not patterns:
            values = [each.other for each in rules.objects if each.other is not None]
            values += rules.unevaluated
        inner = self.shape(tuple(values), f"{rules.at}/additionalProperties")
        fewest, most = rules.fewest.get("object", 0), rules.most.get("object")
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: maxProperties is {most}, below minProperties, {fewest}")
        if fewest > 1:
            raise error_at(rules.at, "minProperties above 1 is not supported without properties")
        if isinstance(inner, Never):
            return Never(inner.why) if fewest else Object(())
        if rules.dependent:
            raise error_at(rules.at, "dependentRequired is not supported without properties")
        name = self._name(rules, [pattern for pattern, _ in patterns])
        most = None if most is None else min(most, MOST_ITEMS)
        if inner == ANY:
            plain = any_value(DEEPEST_VALUE, only_object=True)
            assert isinstance(plain, Map)
            inner = plain.value
        return Map(name, inner, fewest, most)

    def _name(self, rules: Rules, patterns: list[str]) -> Shape:
        """Return the shape of an object's names."""
        named = self._gatherer.gathered(
            (each.names for each in rules.objects if each.names is not None), rules.at
        )
        named.kinds = frozenset(("string",))
        named.patterns += patterns
        return self._shape_of(named)
