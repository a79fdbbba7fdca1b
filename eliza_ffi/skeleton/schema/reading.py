"""From a schema to a shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...errors import InvalidArgumentError
from ..json_text import check_unicode, json_text
from .avoiding import without
from .judging import VALUES_OF_A_PART, allows, excludes
from .numbers import number_shape
from .places import CannotSayError, Part, cannot_say, error_at, pointer_part
from .rules import COST_OF_COPY, DEEPEST_SCHEMA, KINDS, Avoided, Gatherer, Rules
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

MOST_CHOICES = 64
"""The most ``anyOf``, ``oneOf`` and ``if`` about one value."""

COST_OF_NEED = 400
"""What reading an object on with a field's further demands counts as."""

MOST_LARGE_ITEMS = 16
"""The most items with parts that are counted, unless there must be more."""


@dataclass(frozen=True)
class ReadSchema:
    """A schema as a shape.

    Attributes
    ----------
    shape : Shape
    left_out : tuple of str
        Why what need not be written is not, where that is because a skeleton cannot say it.
    optional : frozenset of str
        Where the fields are that are written, and need not be.
    """

    shape: Shape
    left_out: tuple[str, ...]
    optional: frozenset[str]


def read_schema(
    schema: Any, left_out: Mapping[str, CannotSayError] = MappingProxyType({})
) -> ReadSchema:
    """Return the shape of a schema: all that it can be written as is valid.

    Parameters
    ----------
    schema
    left_out
        Fields that are not to be written if they need not be, by where they are, and why not.

    Raises
    ------
    InvalidArgumentError
        If the schema demands what is not understood, or nothing that can be written is valid.
    """
    reader = _SchemaReader(schema, left_out)
    shape = reader.shape((Part(schema),), "")
    if isinstance(shape, Never):
        raise error_at("", f"nothing that can be written is valid: {shape.why}")
    return ReadSchema(shape, tuple(reader.left_out), frozenset(reader.optional))


class _SchemaReader:
    def __init__(self, root: Any, refused: Mapping[str, CannotSayError]) -> None:
        self._gatherer = Gatherer(root)
        self._refused = refused
        self._spent_on: set[object] = set()
        self._avoided: dict[Part, Avoided] = {}
        self.left_out: dict[str, None] = {}
        self.optional: set[str] = set()

    def shape(self, parts: tuple[Part, ...], at: str) -> Shape:
        """Return the shape of the values that are valid against some schemas together."""
        return self._shape_of(self._gatherer.gathered(parts, at))

    def _shape_of(self, rules: Rules) -> Shape:
        if rules.never is not None:
            return Never(rules.never)
        if len(rules.conditions) + len(rules.unions) > MOST_CHOICES:
            raise cannot_say(
                rules.at, f"there are more than {MOST_CHOICES} anyOf, oneOf and if about one value"
            )
        if rules.conditions:
            return self._conditional(rules)
        if rules.unions:
            return self._union(rules)
        return self._avoiding(rules, self._single(rules))

    def _spend_once(self, made: object, n_states: int) -> None:
        """Count the states of an automaton as parts, the first time that it is made."""
        if made not in self._spent_on:
            self._spent_on.add(made)
            self._gatherer.spend(n_states)

    def _avoiding(self, rules: Rules, shape: Shape) -> Shape:
        """Return what of a shape is not valid against what it must not be."""
        nots = [self._avoided_of(part) for part in rules.nots]
        for each in nots:
            if each.rules.is_of_kinds_alone and each.rules.kinds is None:
                return Never(f"#{each.at}: everything is valid against what it must not be")
        for each in (*nots, *rules.avoided):
            if isinstance(shape, Never):
                return shape
            found = without(
                self._gatherer,
                shape,
                each.rules,
                lambda made, name: self._is_valid_without(rules, made, name),
            )
            if found is None:
                raise cannot_say(each.at, each.why)
            shape = found
        for each in (*nots, *rules.avoided):  # of which one may have undone the other
            if not excludes(self._gatherer, each.rules, shape):
                raise cannot_say(each.at, each.why)
        return shape

    def _avoided_of(self, part: Part) -> Avoided:
        if part not in self._avoided:
            rules = self._gatherer.gathered((part,), part.place.at)
            why = "not is supported only where what is written can be kept from being it"
            self._avoided[part] = Avoided(rules, part.place.at, why)
        return self._avoided[part]

    def _is_valid_without(self, rules: Rules, shape: Object, name: str) -> bool:
        names = [each for each, _ in shape.fields if each != name]
        return name not in rules.required and self._misfit(rules, names) is None

    def _conditional(self, rules: Rules) -> Shape:
        """Return the shape of both that are valid: what ``if`` allows, and what it does not."""
        self._gatherer.spend(2 * COST_OF_COPY)
        rest = rules.copied()
        test, then, otherwise = rest.conditions.pop(0)
        no = rest.copied()
        no.nots.append(test)
        branches = [(rest, [test] if then is None else [test, then])]
        branches.append((no, [] if otherwise is None else [otherwise]))
        return self._any_of(branches, f"#{test.place.at}: nothing is left of either branch")

    def _union(self, rules: Rules) -> Shape:
        rest = rules.copied()
        keyword, options = rest.unions.pop(0)
        others = self._others(options, rules.at) if keyword == "oneOf" else {}
        branches = []
        for option in options:
            self._gatherer.spend(COST_OF_COPY)
            both = rest.copied()
            both.at = option.place.at
            both.avoided += [each for other, each in others.items() if other is not option]
            branches.append((both, [option]))
        return self._any_of(branches, f"no option of {keyword} is left")

    def _any_of(self, branches: list[tuple[Rules, list[Part]]], why: str) -> Shape:
        """Return the shape of several, without those that cannot be said while others can."""
        shapes: list[Shape] = []
        refused: list[CannotSayError] = []
        for rules, parts in branches:
            try:
                self._gatherer.gather(rules, parts)
                shapes.append(self._shape_of(rules))
            except CannotSayError as error:
                refused.append(error)
        nothing = next((shape.why for shape in shapes if isinstance(shape, Never)), "")
        shape = union(shapes, f"{why}: {nothing}" if nothing else why)
        if isinstance(shape, Never) and refused:
            raise refused[0]
        self._note(refused)
        return shape

    def _others(self, options: list[Part], at: str) -> dict[Part, Avoided]:
        self._gatherer.spend(len(options) ** 2 // PAIRS_OF_A_PART)
        others = {}
        for j, option in enumerate(options):
            why = (
                f"what is written for another option of oneOf may be valid against option {j} "
                f"too, where only one may be; anyOf is supported"
            )
            rules = self._gatherer.gathered((option,), option.place.at)
            others[option] = Avoided(rules, at, why)
        return others

    def _note(self, refused: Iterable[InvalidArgumentError]) -> None:
        self.left_out.update(dict.fromkeys(map(str, refused)))

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
                raise cannot_say(
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
        self.left_out.update(dict.fromkeys(rules.less))
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
                    raise cannot_say(rules.at, str(error)) from None
            else:
                break
        self._spend_once(text, n_states)
        return text

    def _array(self, rules: Rules) -> Shape:
        fewest, most = rules.fewest.get("array", 0), rules.most.get("array")
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: maxItems is {most}, below minItems, {fewest}")
        if fewest > MOST_ITEMS:
            raise cannot_say(rules.at, f"minItems must be at most {MOST_ITEMS}, not {fewest}")
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
                raise cannot_say(
                    rules.at, "uniqueItems is not supported for arrays of listed items"
                )
            return array
        rest = array.rest
        if isinstance(rest, Plain) and rest.kind == "boolean":
            rest = Listed((True, False))
        if isinstance(rest, Known):
            if array.fewest > 1:
                return Never(f"#{rules.at}: all items are the same")
            return Array((), rest, array.fewest, 1)
        if array.first or not isinstance(rest, Listed):
            refused = cannot_say(rules.at, "uniqueItems is supported only for items of an enum")
            if array.first or array.fewest > 1:
                raise refused
            self._note([refused])
            return Array((), rest, array.fewest, 1)
        if array.fewest > len(rest.values):
            return Never(f"#{rules.at}: there are fewer than {array.fewest} different items")
        return Array((), rest, array.fewest, most, is_distinct=True)

    # ---- objects -----------------------------------------------------------------------------

    def _object(self, rules: Rules) -> Shape:
        names = dict.fromkeys(name for each in rules.objects for name in each.properties)
        names.update(rules.required)
        if not names and not any(each.is_listed for each in rules.objects):
            return self._map(rules)
        for need in rules.needs:
            if need[0] in names and need[0] not in rules.absent:
                return self._needing(rules, *need)
        fields: list[tuple[str, Shape]] = []
        refused: list[CannotSayError] = []
        for name in names:
            try:
                inner = self._field(rules, name)
            except CannotSayError as error:
                if name in rules.required:
                    raise
                refused.append(error)
                continue
            if not isinstance(inner, Never):
                fields.append((name, inner))
            elif name in rules.required:
                return Never(inner.why)
        if refused and not fields:
            raise refused[0]  # rather than write nothing of what is asked for
        self._note(refused)
        fitting = self._fitting(rules, fields)
        why = self._misfit(rules, [name for name, _ in fitting[0]])
        if why is not None:
            if refused:
                raise refused[0]
            return Never(f"#{rules.at}: {why}")
        for name, _ in fields if len(fitting) == 1 else ():
            if name not in rules.required:
                self.optional.add(f"{rules.at}/properties/{pointer_part(name)}")
        return union((Object(tuple(each)) for each in fitting), "")

    def _fitting(
        self, rules: Rules, fields: list[tuple[str, Shape]]
    ) -> list[list[tuple[str, Shape]]]:
        """Return which fields are written, where not all that there are may be: one row or more."""
        names = {name for name, _ in fields}
        missing = {
            name
            for name, needed in rules.dependent
            if name in names and name not in rules.required and not names.issuperset(needed)
        }
        if missing and missing < names:
            return self._fitting(rules, [each for each in fields if each[0] not in missing])
        most = rules.most.get("object", len(fields))
        spare = [name for name in names if name not in rules.required]
        n_spare = most - (len(fields) - len(spare))
        if not 0 <= n_spare < len(spare):
            return [fields]
        if n_spare == 1:
            return [
                [each for each in fields if each[0] in rules.required or each[0] == name]
                for name, _ in fields
                if name in spare
            ]
        kept = [name for name, _ in fields if name in spare][:n_spare]
        return [[each for each in fields if each[0] in rules.required or each[0] in kept]]

    def _needing(self, rules: Rules, name: str, part: Part) -> Shape:
        """Return the shape of an object of which a field makes further demands."""
        rest = rules.copied()
        rest.needs.remove((name, part))
        both = rest.copied()
        both.kinds = frozenset(("object",))
        refused: CannotSayError | None = None
        try:
            self._gatherer.spend(COST_OF_NEED)
            self._gatherer.gather(both, (part,))
            shape = self._shape_of(both)
        except CannotSayError as error:
            refused, shape = error, Never(str(error))
        if not isinstance(shape, Never) or name in rules.required:
            if refused is not None:
                raise refused
            return shape
        if refused is not None:
            self._note([refused])
        rest.absent.add(name)
        return self._object(rest)

    def _field(self, rules: Rules, name: str) -> Shape:
        at = f"{rules.at}/properties/{pointer_part(name)}"
        if name in rules.absent:
            return Never(f"#{at}: what it demands cannot be")
        if at in self._refused:
            raise self._refused[at]
        try:
            check_unicode(name, "the name")
        except InvalidArgumentError as error:
            raise error_at(at, str(error)) from None
        parts: list[Part] = []
        for each in rules.objects:
            found = each.parts_of(name)
            if found is None:
                raise cannot_say(
                    at,
                    "it is not known whether the name is one that patternProperties is about: "
                    "only regular expressions that are understood are supported",
                )
            parts += found
            if each.names is not None:
                named = self._gatherer.gathered((each.names,), each.names.place.at)
                if not allows(self._gatherer, named, name):
                    return Never(f"#{at}: the name is not among propertyNames")
        for scope, part in rules.unevaluated:
            told = (each.tells_of(name) for each in rules.objects if scope in each.scopes)
            if not any(told):
                parts.append(part)
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
        # All of them: a name that one is about may be one that others are about, too.
        values = [part for _, part in patterns]
        named = next((each for each in rules.objects if each.patterns), None)
        for each in rules.objects:
            if each is not named and each.other is not None:
                values.append(each.other)
        for scope, part in rules.unevaluated:
            if named is None or scope not in named.scopes:
                values.append(part)
        inner = self.shape(tuple(values), f"{rules.at}/additionalProperties")
        fewest, most = rules.fewest.get("object", 0), rules.most.get("object")
        if most is not None and most < fewest:
            return Never(f"#{rules.at}: maxProperties is {most}, below minProperties, {fewest}")
        if fewest > 1:
            raise cannot_say(rules.at, "minProperties above 1 is not supported without properties")
        if isinstance(inner, Never):
            return Never(inner.why) if fewest else Object(())
        if rules.dependent or rules.needs:
            raise cannot_say(rules.at, "dependentRequired is not supported without properties")
        name = self._name(rules, [pattern for pattern, _ in patterns[:1]])
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
