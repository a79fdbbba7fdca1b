"""Whether a value is valid against a schema, and whether nothing of a shape is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...automata import intersection
from ...errors import InvalidArgumentError
from ..json_text import read_json, string_body
from .places import Part
from .rules import Gatherer, Rules, same_key
from .shapes import Array, Known, Listed, Map, Never, Number, Object, Plain, Shape, Text, Union
from .strings import body_dfa, has_classes, is_found, searching

__all__ = ["allows", "counts", "excludes"]

VALUES_OF_A_PART = 16
"""How many values are looked at in the time of a schema."""

MOST_PAIRS = 2**12
"""The most pairs of states of a string and of a pattern that are looked at."""

_NUMBERS = frozenset(("integer", "number"))
_PLAIN_KINDS = {
    "free-string": frozenset(("string",)),
    "boolean": frozenset(("boolean",)),
    "number": _NUMBERS,
    "integer": _NUMBERS,
}


def allows(gatherer: Gatherer, rules: Rules, value: Any) -> bool | None:
    """Return whether a value is what rules demand; None where that is not known."""
    if rules.is_of_kinds_alone:
        return rules.kinds is None or not _kinds_of_value(value).isdisjoint(rules.kinds)
    return _all_of(_verdicts(gatherer, rules, value))


def excludes(gatherer: Gatherer, rules: Rules, shape: Shape) -> bool:
    """Return whether surely nothing that a shape writes is what rules demand."""
    if rules.never is not None or isinstance(shape, Never):
        return True
    if isinstance(shape, Union):
        return all(excludes(gatherer, rules, option) for option in shape.options)
    if isinstance(shape, Known):
        return allows(gatherer, rules, read_json(shape.text)) is False
    if isinstance(shape, Listed):
        gatherer.spend(len(shape.values) // VALUES_OF_A_PART)
        return all(allows(gatherer, rules, value) is False for value in shape.values)
    kinds = _kinds(shape)
    if rules.kinds is not None and kinds.isdisjoint(rules.kinds):
        return True
    if rules.values is not None:
        gatherer.spend(len(rules.values) // VALUES_OF_A_PART)
        if not any(_may_write(shape, value) for value in rules.values.values()):
            return True
    for _, options in rules.unions:
        if all(_excluded(gatherer, (option,), shape) for option in options):
            return True
    if isinstance(shape, Text):
        gatherer.spend(len(rules.patterns))
        if any(_is_never_found(each, shape) for each in rules.patterns):
            return True
    fewest, most = counts(shape)
    for kind in kinds & rules.fewest.keys():
        if most is not None and most < rules.fewest[kind]:
            return True
    for kind in kinds & rules.most.keys():
        if fewest > rules.most[kind]:
            return True
    if isinstance(shape, Object):
        return _excludes_object(gatherer, rules, shape)
    if isinstance(shape, Array):
        return any(
            _excluded(gatherer, each.parts_of(i), item)
            for each in rules.arrays
            for i, item in enumerate(shape.sure)
        )
    return False


def _is_never_found(pattern: str, text: Text) -> bool:
    if pattern in text.lacking:
        return True
    automata = None if has_classes(pattern) else searching(pattern)
    if automata is None:
        return False
    try:
        body = body_dfa(text)
        return all(intersection(body, dfa, MOST_PAIRS) is None for dfa in automata)
    except InvalidArgumentError:
        return False


def counts(shape: Shape) -> tuple[int, int | None]:
    """Return the fewest and the most characters, items or fields of a shape, as far as known."""
    if isinstance(shape, Object):
        return len(shape.fields), len(shape.fields)
    if isinstance(shape, Text | Array):
        return shape.fewest, shape.most
    return (shape.fewest, None) if isinstance(shape, Map) else (0, None)


def _excluded(gatherer: Gatherer, parts: Iterable[Part], shape: Shape) -> bool:
    return excludes(gatherer, gatherer.gathered(parts, ""), shape)


def _excludes_object(gatherer: Gatherer, rules: Rules, shape: Object) -> bool:
    fields = dict(shape.fields)
    if any(name not in fields for name in rules.required):
        return True
    for each in rules.objects:
        for name, inner in fields.items():
            parts = each.parts_of(name)
            if parts and _excluded(gatherer, parts, inner):
                return True
    return False


def _kinds(shape: Shape) -> frozenset[str]:
    if isinstance(shape, Text):
        return frozenset(("string",))
    if isinstance(shape, Number):
        return _NUMBERS
    if isinstance(shape, Object | Map):
        return frozenset(("object",))
    if isinstance(shape, Array):
        return frozenset(("array",))
    assert isinstance(shape, Plain)
    every = frozenset(("object", "array", "null", "string", "boolean")) | _NUMBERS
    return _PLAIN_KINDS.get(shape.kind, every)


def _may_write(shape: Shape, value: Any) -> bool:
    if _kinds(shape).isdisjoint(_kinds_of_value(value)):
        return False
    if isinstance(shape, Text):
        return body_dfa(shape).accepts(string_body(value).encode())
    return True


def _kinds_of_value(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset(("boolean",))
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return _NUMBERS
    if isinstance(value, float):
        return frozenset(("number",))
    if value is None:
        return frozenset(("null",))
    if isinstance(value, str):
        return frozenset(("string",))
    return frozenset(("object" if isinstance(value, Mapping) else "array",))


def _all_of(verdicts: Iterable[bool | None]) -> bool | None:
    verdict: bool | None = True
    for each in verdicts:
        if each is False:
            return False
        if each is None:
            verdict = None
    return verdict


def _verdicts(gatherer: Gatherer, rules: Rules, value: Any) -> Iterable[bool | None]:
    """Yield what is found of a value, one rule after the other."""
    yield rules.never is None
    kinds = _kinds_of_value(value)
    yield rules.kinds is None or not kinds.isdisjoint(rules.kinds)
    if rules.values is not None:
        yield same_key(value) in rules.values
    for kind in rules.refused:
        yield None if kind is None or kind in kinds else True
    for keyword, options in rules.unions:
        found = [_allowed(gatherer, (option,), value) for option in options]
        n_valid = found.count(True)
        if keyword == "oneOf":
            yield False if n_valid > 1 else None if None in found else n_valid == 1
        else:
            yield True if n_valid else None if None in found else False
    for part in rules.nots:
        yield _not(_allowed(gatherer, (part,), value))
    for avoided in rules.avoided:
        yield _not(allows(gatherer, avoided.rules, value))
    for test, then, otherwise in rules.conditions:
        holds = _allowed(gatherer, (test,), value)
        found = [part is None or _allowed(gatherer, (part,), value) for part in (then, otherwise)]
        if holds is None:
            yield found[0] if found[0] == found[1] else None
        else:
            yield found[0] if holds else found[1]
    if kinds <= _NUMBERS:
        yield rules.bounds.allow(value)
    elif isinstance(value, str):
        yield _has_count(rules, "string", len(value))
        for pattern in rules.patterns:
            yield is_found(pattern, value)
    elif isinstance(value, Mapping):
        yield from _object_verdicts(gatherer, rules, value)
    elif isinstance(value, list | tuple):
        yield from _array_verdicts(gatherer, rules, value)


def _not(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


def _allowed(gatherer: Gatherer, parts: Iterable[Part], value: Any) -> bool | None:
    return allows(gatherer, gatherer.gathered(parts, ""), value)


def _object_verdicts(
    gatherer: Gatherer, rules: Rules, value: Mapping[str, Any]
) -> Iterable[bool | None]:
    yield _has_count(rules, "object", len(value))
    yield all(name in value for name in rules.required)
    for name, needed in rules.dependent:
        yield name not in value or all(each in value for each in needed)
    for name, part in rules.needs:
        yield name not in value or _allowed(gatherer, (part,), value)
    yield rules.absent.isdisjoint(value)
    yield None if rules.unevaluated else True
    for each in rules.objects:
        for name, inner in value.items():
            parts = each.parts_of(name)
            yield None if parts is None else _allowed(gatherer, parts, inner)
            if each.names is not None:
                yield _allowed(gatherer, (each.names,), name)


def _array_verdicts(
    gatherer: Gatherer, rules: Rules, value: list[Any] | tuple[Any, ...]
) -> Iterable[bool | None]:
    yield _has_count(rules, "array", len(value))
    if rules.is_distinct:
        yield len({same_key(each) for each in value}) == len(value)
    for each in rules.arrays:
        for i, inner in enumerate(value):
            yield _allowed(gatherer, each.parts_of(i), inner)


def _has_count(rules: Rules, kind: str, count: int) -> bool:
    return rules.fewest.get(kind, 0) <= count <= rules.most.get(kind, count)
