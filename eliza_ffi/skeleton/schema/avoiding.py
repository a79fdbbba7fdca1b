"""Less of a shape, so that nothing that is left is valid against what it must not be.

That is what ``not`` demands, and ``oneOf`` of every option with regard to the others. What could be
either way is left out: fields that need not be written, values of a choice, the empty array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from ...errors import InvalidArgumentError
from .judging import VALUES_OF_A_PART, allows, counts, excludes
from .places import Part
from .rules import Gatherer, Rules
from .shapes import Array, Known, Listed, Object, Plain, Shape, Text, Union, choice
from .strings import LONGEST_STRING, body_dfa, has_classes

__all__ = ["without"]

DEEPEST = 4
"""How deep inside a value it is made another one."""

MOST_UNLIKE = 64
"""The most strings that another string is kept from."""

CanLeaveOut = Callable[[Object, str], bool]


def without(
    gatherer: Gatherer, shape: Shape, rules: Rules, can_leave_out: CanLeaveOut, depth: int = DEEPEST
) -> Shape | None:
    """Return what of a shape surely is not what rules demand, None where nothing is found.

    Parameters
    ----------
    gatherer
    shape
    rules
    can_leave_out
        Whether an object is as valid without a field of it.
    depth
        How deep it is looked into values.
    """
    if excludes(gatherer, rules, shape):
        return shape
    if depth == 0:
        return None
    if isinstance(shape, Union):
        left = [without(gatherer, each, rules, can_leave_out, depth) for each in shape.options]
        kept = tuple(each for each in left if each is not None)
        return (kept[0] if len(kept) == 1 else Union(kept)) if kept else None
    for found in _tries(gatherer, shape, rules, can_leave_out, depth):
        if excludes(gatherer, rules, found):
            return found
    return None


def _tries(
    gatherer: Gatherer, shape: Shape, rules: Rules, can_leave_out: CanLeaveOut, depth: int
) -> Iterable[Shape]:
    """Yield shapes that write less, the ones that lose least first."""
    if isinstance(shape, Plain) and shape.kind == "boolean":
        shape = Listed((True, False))
    if isinstance(shape, Listed):
        gatherer.spend(len(shape.values) // VALUES_OF_A_PART)
        kept = [value for value in shape.values if allows(gatherer, rules, value) is False]
        if kept:
            yield choice(kept)
    elif isinstance(shape, Text) or shape == Plain("free-string"):
        yield from _other_strings(shape, rules)
    elif isinstance(shape, Array):
        if shape.fewest == 0 and (shape.most is None or shape.most > 0):
            yield replace(shape, fewest=1)
    elif isinstance(shape, Object):
        yield from _other_objects(gatherer, shape, rules, can_leave_out, depth)
    for _, options in rules.unions:
        left: Shape | None = shape
        for option in options:
            if left is not None:
                inner = gatherer.gathered((option,), option.place.at)
                left = without(gatherer, left, inner, can_leave_out, depth - 1)
        if left is not None:
            yield left


def _other_strings(shape: Shape, rules: Rules) -> Iterable[Shape]:
    given = shape if isinstance(shape, Text) else Text(())
    texts = [each for each in (rules.values or {}).values() if isinstance(each, str)]
    made = []
    if 0 < len(texts) <= MOST_UNLIKE and sum(map(len, texts)) <= LONGEST_STRING:
        made.append(replace(given, unlike=tuple(dict.fromkeys((*given.unlike, *texts)))))
    for pattern in rules.patterns if not any(map(has_classes, rules.patterns)) else ():
        made.append(replace(given, lacking=tuple(dict.fromkeys((*given.lacking, pattern)))))
    for each in made:
        with suppress(InvalidArgumentError):  # where the pattern is not known, or nothing is left
            body_dfa(each)
            yield each


def _other_objects(
    gatherer: Gatherer, shape: Object, rules: Rules, can_leave_out: CanLeaveOut, depth: int
) -> Iterable[Shape]:
    fields = dict(shape.fields)
    demanded: dict[str, tuple[Part, ...]] = {}
    for each in rules.objects:
        for name in fields:
            demanded[name] = (*demanded.get(name, ()), *(each.parts_of(name) or ()))
    # A value that tells apart, then a field that need not be there, then any other value.
    telling = [name for name in fields if isinstance(fields[name], Listed)]
    yield from _other_fields(gatherer, shape, demanded, telling, depth)
    for name in rules.required:
        if name in fields and can_leave_out(shape, name):
            yield _less(shape, name)
    rest = [name for name in fields if not isinstance(fields[name], Known | Listed)]
    yield from _other_fields(gatherer, shape, demanded, rest, depth)
    most = rules.fewest.get("object", 0)
    fewer = shape
    for name in reversed(fields):
        if counts(fewer)[0] >= most > 0 and can_leave_out(fewer, name):
            fewer = _less(fewer, name)
    yield fewer


def _other_fields(
    gatherer: Gatherer,
    shape: Object,
    demanded: dict[str, tuple[Part, ...]],
    names: Iterable[str],
    depth: int,
) -> Iterable[Shape]:
    for name in names:
        if not demanded.get(name):
            continue
        inner = gatherer.gathered(demanded[name], "")
        made = without(gatherer, dict(shape.fields)[name], inner, _never, depth - 1)
        if made is not None:
            fields = ((each, made if each == name else old) for each, old in shape.fields)
            yield Object(tuple(fields))


def _less(shape: Object, name: str) -> Object:
    return Object(tuple((each, inner) for each, inner in shape.fields if each != name))


def _never(shape: Object, name: str) -> bool:
    return False
