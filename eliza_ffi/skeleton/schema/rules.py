"""What a schema demands of a value, keyword by keyword; several schemas may demand together.

Keywords that restrict nothing are passed over, as the standard wants it: annotations, and those
that it does not know. A keyword that restricts and is not understood is remembered, and refused
where a value of its kind would be written.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ...automata import MOST_MULTIPLE
from ...errors import InvalidArgumentError
from ..json_text import json_text
from .numbers import SAFE_DIGITS, Bounds, divides_whole_numbers, read_multiple, read_number
from .places import CannotSayError, Part, error_at, pointer_part, shown
from .references import find
from .strings import FORMATS, MOST_SEARCHING_STATES, is_found, searching

__all__ = ["DEEPEST_SCHEMA", "KINDS", "ArrayRules", "Gatherer", "ObjectRules", "Rules", "same_key"]

DEEPEST_SCHEMA = 32
"""The deepest that objects, arrays and alternatives may stand in each other."""

MOST_PARTS = 10_000
"""The most schemas that one schema may come to: references and alternatives are written out.

What takes as long as some schemas counts as some: long numbers, large patterns.
"""

COST_OF_COPY = 10
"""What reading on with one of several alternatives counts as."""

MOST_VALUES = 2**15
"""The most values of an enum."""

KINDS = ("object", "string", "integer", "number", "boolean", "null", "array")

_LARGEST_COUNT = 10**9

_REFUSED = {
    **dict.fromkeys(("$dynamicRef", "$recursiveRef", "extends", "disallow"), None),
    **dict.fromkeys(("contains", "unevaluatedItems"), "array"),
    "divisibleBy": "number",
}
"""Keywords that restrict and are not understood, and the kind of values that they restrict."""


@dataclass
class ObjectRules:
    """What one schema says of an object's fields."""

    properties: dict[str, Part] = field(default_factory=dict)
    patterns: dict[str, Part] = field(default_factory=dict)
    other: Part | None = None
    names: Part | None = None
    is_listed: bool = False
    """Whether there are ``properties`` at all, even if none."""
    scopes: tuple[str, ...] = ()
    """The scopes of its place."""

    def tells_of(self, name: str) -> bool:
        """Return whether it surely says something of a field."""
        told = name in self.properties or self.other is not None
        return told or any(is_found(pattern, name) for pattern in self.patterns)

    def parts_of(self, name: str) -> tuple[Part, ...] | None:
        """Return what a field must be valid against; None if that is not known."""
        found = [self.properties[name]] if name in self.properties else []
        for pattern, part in self.patterns.items():
            is_meant = is_found(pattern, name)
            if is_meant is None:
                return None
            if is_meant:
                found.append(part)
        return tuple(found) if found or self.other is None else (self.other,)


@dataclass
class ArrayRules:
    """What one schema says of an array's items."""

    first: list[Part] = field(default_factory=list)
    rest: Part | None = None

    def parts_of(self, i: int) -> tuple[Part, ...]:
        if i < len(self.first):
            return (self.first[i],)
        return () if self.rest is None else (self.rest,)


@dataclass
class Rules:
    """What one or more schemas demand of a value.

    Attributes
    ----------
    at : str
        Where the first of them is.
    never : str or None
        Why no value is valid, where that is so.
    kinds : frozenset of str or None
        Its types; ``"integer"`` is named beside ``"number"``.
    hints : set of str
        Types that some keyword restricts.
    values : dict or None
        The values of ``enum`` and ``const``, by what :func:`same_key` makes of them. It is never
        changed, only replaced.
    unevaluated : list
        Scopes, and what fields must be valid against of which nothing in the scope says anything.
    conditions : list
        Of each ``if``: it, what holds then, and what holds else.
    avoided : list of Avoided
        What the value must not be valid against.
    needs : list
        Names, and what the object must be valid against where it has a field of that name.
    absent : set of str
        Names of fields that are not to be written.
    less : list of str
        Why fewer numbers are written than are valid.
    """

    at: str
    never: str | None = None
    kinds: frozenset[str] | None = None
    hints: set[str] = field(default_factory=set)
    values: dict[str, Any] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    fewest: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    patterns: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    objects: list[ObjectRules] = field(default_factory=list)
    unevaluated: list[tuple[str, Part]] = field(default_factory=list)
    required: dict[str, None] = field(default_factory=dict)
    dependent: list[tuple[str, list[str]]] = field(default_factory=list)
    arrays: list[ArrayRules] = field(default_factory=list)
    is_distinct: bool = False
    unions: list[tuple[str, list[Part]]] = field(default_factory=list)
    conditions: list[tuple[Part, Part | None, Part | None]] = field(default_factory=list)
    nots: list[Part] = field(default_factory=list)
    avoided: list[Avoided] = field(default_factory=list)
    needs: list[tuple[str, Part]] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    refused: dict[str | None, str] = field(default_factory=dict)
    less: list[str] = field(default_factory=list)

    @property
    def is_of_kinds_alone(self) -> bool:
        """Whether nothing but types is demanded, which is seen at once."""
        more = (self.hints, self.unions, self.conditions, self.nots, self.avoided, self.refused)
        return self.never is None and self.values is None and not any(more)

    def copied(self) -> Rules:
        """Return a copy that more can be demanded of."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list | set | Bounds) and name != "values":
                setattr(made, name, copy.copy(value))
        return made

    def check_refused(self, kind: str | None) -> None:
        """Raise an error if something is demanded of values of this kind that is not understood."""
        if kind in self.refused:
            raise CannotSayError(self.refused[kind])


@dataclass(frozen=True)
class Avoided:
    """What a value must not be valid against, and what is said where that cannot be kept to."""

    rules: Rules
    at: str
    why: str


class Gatherer:
    """Reads the keywords of schemas, and follows references."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._parts_left = MOST_PARTS
        self._searched: set[str] = set()

    def gathered(self, parts: Iterable[Part], at: str) -> Rules:
        """Return what some schemas demand together of one value."""
        rules = Rules(at)
        self.gather(rules, parts)
        return rules

    def gather(self, rules: Rules, parts: Iterable[Part]) -> None:
        """Add what some schemas demand."""
        pending = deque(parts)
        while pending:
            part = pending.popleft()
            at, schema = part.place.at, part.schema
            self._count(part)
            if schema is True:
                continue
            if schema is False:
                rules.never = rules.never or f"#{at}: no value is valid against false"
                continue
            if not isinstance(schema, Mapping):
                raise error_at(
                    at, f"a schema must be an object, true or false, not {shown(schema)}"
                )
            if at and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
                part = Part(schema, replace(part.place, is_foreign=True))
            if "unevaluatedProperties" in schema:
                scopes = (*part.place.scopes, at)
                part = Part(schema, replace(part.place, scopes=scopes))
            if "$ref" in schema:
                target = find(self._root, schema["$ref"], part.place)
                if target is None:
                    rules.never = rules.never or (
                        f"#{at}: {shown(schema['$ref'])} contains itself without end"
                    )
                else:
                    pending.append(target)
            for i, each in enumerate(_parts(schema, "allOf", at)):
                pending.append(part.beside(f"allOf/{i}", each))
            self._read(rules, part)

    def spend(self, n_parts: int) -> None:
        """Count some more parts.

        Raises
        ------
        InvalidArgumentError
            If there are too many.
        """
        self._parts_left -= n_parts
        if self._parts_left < 0:
            raise error_at(
                "",
                f"with its references and alternatives written out, the schema has more than "
                f"{MOST_PARTS} parts",
            )

    def _count(self, part: Part) -> None:
        at = part.place.at
        if part.place.depth > DEEPEST_SCHEMA:
            raise error_at(
                at if len(at) < 200 else f"{at[:200]}...",
                f"the schema is nested deeper than {DEEPEST_SCHEMA} levels; one that contains "
                f"itself has no end",
            )
        self.spend(1)

    def _read(self, rules: Rules, part: Part) -> None:
        schema, at = part.schema, part.place.at
        for name, read in _READERS.items():
            if name in schema:
                try:
                    read(rules, part, schema[name])
                except InvalidArgumentError as error:
                    text = str(error)
                    if text.startswith("JSON schema"):
                        raise
                    raise error_at(at, text) from None
        for name, kind in _REFUSED.items():
            if name in schema:
                refused = str(error_at(at, f"{name} is not supported"))
                rules.refused.setdefault(kind, refused)
                if kind is not None:
                    rules.hints.add(kind)
        if not _OBJECT_KEYWORDS.isdisjoint(schema):
            self._read_object(rules, part)
        if not _ARRAY_KEYWORDS.isdisjoint(schema):
            self._read_array(rules, part)

    def _read_object(self, rules: Rules, part: Part) -> None:
        schema = part.schema
        rules.hints.add("object")
        made = ObjectRules(is_listed="properties" in schema, scopes=part.place.scopes)
        for name, each in _mapping(schema, "properties", part).items():
            made.properties[str(name)] = part.within(f"properties/{pointer_part(name)}", each)
        for name, each in _mapping(schema, "patternProperties", part).items():
            made.patterns[str(name)] = part.within(f"patternProperties/{pointer_part(name)}", each)
        for pattern in made.patterns.keys() - self._searched:
            self._searched.add(pattern)
            automata = searching(pattern)
            n_states = MOST_SEARCHING_STATES
            self.spend(n_states if automata is None else sum(dfa.n_states for dfa in automata))
        if "additionalProperties" in schema:
            made.other = part.within("additionalProperties", schema["additionalProperties"])
        if "unevaluatedProperties" in schema:
            name = "unevaluatedProperties"
            rules.unevaluated.append((part.place.at, part.within(name, schema[name])))
        if "propertyNames" in schema:
            made.names = part.within("propertyNames", schema["propertyNames"])
        rules.objects.append(made)

    def _read_array(self, rules: Rules, part: Part) -> None:
        schema = part.schema
        rules.hints.add("array")
        made = ArrayRules()
        listed, rest = "prefixItems", "items"
        if isinstance(schema.get("items"), list | tuple):
            listed, rest = "items", "additionalItems"
        made.first = [
            part.within(f"{listed}/{i}", each)
            for i, each in enumerate(_parts(schema, listed, part.place.at, may_be_empty=True))
        ]
        if rest in schema:
            made.rest = part.within(rest, schema[rest])
        rules.arrays.append(made)


def same_key(value: Any) -> str:
    """Return a text that is the same for values that JSON Schema calls equal: 1 and 1.0 are."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, Mapping):
            return {name: plain(value[name]) for name in sorted(value)}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return value

    try:
        return json_text(plain(value))
    except (RecursionError, TypeError) as error:
        raise InvalidArgumentError(f"not a JSON value: {error}") from None


def _parts(
    schema: Mapping[str, Any], name: str, at: str, *, may_be_empty: bool = False
) -> list[Any] | tuple[Any, ...]:
    if name not in schema:
        return ()
    listed = schema[name]
    if not isinstance(listed, list | tuple) or not (listed or may_be_empty):
        raise error_at(at, f"{name} must be a list of schemas, not {shown(listed)}")
    return listed


def _mapping(schema: Mapping[str, Any], name: str, part: Part) -> Mapping[str, Any]:
    listed = schema.get(name, {})
    if not isinstance(listed, Mapping):
        raise error_at(part.place.at, f"{name} must be an object, not {shown(listed)}")
    return listed


# ---- one keyword each ------------------------------------------------------------------------


def _read_type(rules: Rules, part: Part, value: Any) -> None:
    kinds = value if isinstance(value, list | tuple) else [value]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidArgumentError(f"type must be one of {', '.join(KINDS)}, not {shown(kind)}")
    if not kinds:
        raise InvalidArgumentError("type is an empty list")
    found = frozenset(kinds) | (frozenset(("integer",)) if "number" in kinds else frozenset())
    rules.kinds = found if rules.kinds is None else rules.kinds & found
    if not rules.kinds:
        rules.never = rules.never or f"#{part.place.at}: no type is left"


def _read_enum(rules: Rules, part: Part, value: Any) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidArgumentError(f"enum must be a list, not {shown(value)}")
    if not value:
        raise InvalidArgumentError("enum is empty: there is nothing to choose from")
    if len(value) > MOST_VALUES:
        raise InvalidArgumentError(f"enum has {len(value)} values, more than {MOST_VALUES}")
    seen: dict[str, int] = {}
    for i, each in enumerate(value):
        try:
            text = json_text(each)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"enum[{i}]: {error}") from None
        if text in seen:
            raise InvalidArgumentError(f"enum[{i}] is {text:.80}, the same as enum[{seen[text]}]")
        seen[text] = i
    _take_values(rules, list(value), part)


def _read_const(rules: Rules, part: Part, value: Any) -> None:
    try:
        json_text(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"const: {error}") from None
    _take_values(rules, [value], part)


def _take_values(rules: Rules, values: list[Any], part: Part) -> None:
    keyed = {same_key(value): value for value in reversed(values)}
    if rules.values is not None:
        keyed = {key: value for key, value in rules.values.items() if key in keyed}
        if not keyed:
            rules.never = rules.never or f"#{part.place.at}: no value of enum and const is left"
        rules.values = keyed
    else:
        rules.values = dict(reversed(keyed.items()))


def _read_bound(name: str) -> Callable[[Rules, Part, Any], None]:
    def read(rules: Rules, part: Part, value: Any) -> None:
        rules.hints.add("number")
        schema = part.schema
        is_excluding = name.startswith("exclusive")
        if is_excluding and isinstance(value, bool):  # as draft 4 has it
            inclusive = name.removeprefix("exclusive").lower()
            if not value or inclusive not in schema:
                return
            value = schema[inclusive]
        bound = read_number(value, name)
        if name.lower().endswith("minimum"):
            rules.bounds.raise_least(bound, is_excluding)
        else:
            rules.bounds.lower_most(bound, is_excluding)

    return read


def _read_multiple_of(rules: Rules, part: Part, value: Any) -> None:
    rules.hints.add("number")
    try:
        multiple = read_multiple(value)
    except InvalidArgumentError as error:
        refused = str(error_at(part.place.at, str(error)))
        if not divides_whole_numbers(value):
            rules.refused.setdefault("number", refused)
            return
        # Whole numbers are multiples of it, too. Floats tell so many digits apart.
        rules.less.append(refused)
        multiple = 1
        rules.bounds.raise_least(Fraction(-(10**SAFE_DIGITS)), False)
        rules.bounds.lower_most(Fraction(10**SAFE_DIGITS), False)
    both = math.lcm(multiple, rules.bounds.multiple or 1)
    if both > MOST_MULTIPLE:
        refused = str(error_at(part.place.at, f"multiples of {both} are not supported"))
        rules.refused.setdefault("number", refused)
    else:
        rules.bounds.multiple = both


def _read_count(name: str) -> Callable[[Rules, Part, Any], None]:
    kind = {"Length": "string", "Items": "array", "Properties": "object"}[name[3:]]

    def read(rules: Rules, part: Part, value: Any) -> None:
        rules.hints.add(kind)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidArgumentError(
                f"{name} must be a whole number of 0 or more, not {shown(value)}"
            )
        # None as large is ever reached, and Python writes not all numbers out.
        value = min(value, _LARGEST_COUNT)
        if name.startswith("min"):
            rules.fewest[kind] = max(value, rules.fewest.get(kind, 0))
        else:
            rules.most[kind] = min(value, rules.most.get(kind, value))

    return read


def _read_pattern(rules: Rules, part: Part, value: Any) -> None:
    rules.hints.add("string")
    if not isinstance(value, str):
        raise InvalidArgumentError(f"pattern must be a string, not {shown(value)}")
    if value not in rules.patterns:
        rules.patterns.append(value)


def _read_format(rules: Rules, part: Part, value: Any) -> None:
    if isinstance(value, str) and value in FORMATS and value not in rules.formats:
        rules.hints.add("string")
        rules.formats.append(value)


def _read_required(rules: Rules, part: Part, value: Any) -> None:
    if isinstance(value, bool):
        raise InvalidArgumentError("required must be a list; that of draft 3 is not supported")
    rules.hints.add("object")
    if not isinstance(value, list | tuple):
        raise InvalidArgumentError(f"required must be a list, not {shown(value)}")
    for name in value:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"required names {shown(name)}, which is no string")
        rules.required[name] = None


def _read_dependent(keyword: str) -> Callable[[Rules, Part, Any], None]:
    def read(rules: Rules, part: Part, value: Any) -> None:
        rules.hints.add("object")
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(f"{keyword} must be an object, not {shown(value)}")
        for name, needed in value.items():
            if isinstance(needed, str):  # as draft 3 has it
                needed = [needed]
            if isinstance(needed, list | tuple):
                if not all(isinstance(each, str) for each in needed):
                    raise InvalidArgumentError(f"{keyword} must name fields: {shown(needed)}")
                rules.dependent.append((str(name), list(needed)))
            else:
                path = f"{keyword}/{pointer_part(name)}"
                rules.needs.append((str(name), part.option(path, needed)))

    return read


def _read_union(name: str) -> Callable[[Rules, Part, Any], None]:
    def read(rules: Rules, part: Part, value: Any) -> None:
        listed = _parts(part.schema, name, part.place.at)
        rules.unions.append(
            (name, [part.option(f"{name}/{i}", each) for i, each in enumerate(listed)])
        )

    return read


def _read_if(rules: Rules, part: Part, value: Any) -> None:
    then, otherwise = (
        part.option(name, part.schema[name]) if name in part.schema else None
        for name in ("then", "else")
    )
    if then is not None or otherwise is not None:
        rules.conditions.append((part.option("if", value), then, otherwise))


def _read_not(rules: Rules, part: Part, value: Any) -> None:
    rules.nots.append(part.within("not", value))


def _read_unique(rules: Rules, part: Part, value: Any) -> None:
    rules.hints.add("array")
    rules.is_distinct = rules.is_distinct or bool(value)


_READERS: dict[str, Callable[[Rules, Part, Any], None]] = {
    "type": _read_type,
    "enum": _read_enum,
    "const": _read_const,
    **{name: _read_bound(name) for name in ("minimum", "exclusiveMinimum")},
    **{name: _read_bound(name) for name in ("maximum", "exclusiveMaximum")},
    "multipleOf": _read_multiple_of,
    **{
        f"{end}{what}": _read_count(f"{end}{what}")
        for end in ("min", "max")
        for what in ("Length", "Items", "Properties")
    },
    "pattern": _read_pattern,
    "format": _read_format,
    "required": _read_required,
    **{
        name: _read_dependent(name)
        for name in ("dependentRequired", "dependentSchemas", "dependencies")
    },
    "anyOf": _read_union("anyOf"),
    "oneOf": _read_union("oneOf"),
    "if": _read_if,
    "not": _read_not,
    "uniqueItems": _read_unique,
}

_OBJECT_KEYWORDS = frozenset(
    (
        *("properties", "patternProperties", "additionalProperties"),
        *("unevaluatedProperties", "propertyNames"),
    )
)
_ARRAY_KEYWORDS = frozenset(("items", "prefixItems", "additionalItems"))
