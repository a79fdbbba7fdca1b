"""What a chat template may still do: a budget of time and memory, and how values are counted.

A step costs 100 units and a value that is made as many more as it has bytes. The clock is looked at
every forty steps, so what takes long must cost more than a step: it is measured before it is done,
and refused if it is too large.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .namespace import OpenNamespace, values_of

__all__ = [
    "MAX_DEPTH",
    "MAX_ITEMS",
    "MAX_TEXT",
    "SCALARS",
    "STEP",
    "Budget",
    "Lazy",
    "LimitReached",
    "TemplateList",
    "bounded",
    "compared",
    "each",
    "fits",
    "made",
    "measured",
    "remaining",
    "short",
    "spend",
]

MAX_SECONDS, SECONDS_PER_MESSAGE = 1.0, 0.005  # some templates look at all before each
MAX_UNITS = 100_000_000

STEP = 100
"""The units that a step costs."""

MAX_TEXT = 10_000_000
"""The most characters of a text that a template makes."""

MAX_ITEMS = 100_000
"""The most items of a list or a mapping that a template makes."""

MAX_DEPTH = 50
"""How deep values may be in each other, and calls."""

SCALARS = frozenset((bool, float, int, type(None)))
"""Types whose values are small, and have no items."""

MAX_SHORT = 100  # characters of what nobody needs long: names, numbers, widths
LOOK = 40 * STEP  # units between two looks at the clock
ITEM = 20  # characters that an item takes when it is written, beside its own


class LimitReached(Exception):  # noqa: N818 - an outcome
    """The template would do more than it may."""


class Budget:
    """What a template may still do."""

    __slots__ = ("calls", "left", "look", "seconds", "until")

    def __init__(self, messages: int) -> None:
        self.calls = 0
        self.left = self.look = MAX_UNITS
        self.seconds = MAX_SECONDS + SECONDS_PER_MESSAGE * messages
        self.until = time.thread_time() + self.seconds

    def look_at_clock(self) -> None:
        """Raise if nothing is left."""
        if self.left < 0:
            raise LimitReached("it takes too many steps or too much memory")
        if time.thread_time() > self.until:
            raise LimitReached(f"it takes longer than {self.seconds:g} seconds")
        self.look = max(0, self.left - LOOK)


_budget: ContextVar[Budget] = ContextVar("_budget")


@contextmanager
def bounded(messages: int = 0) -> Iterator[None]:
    """Give what is rendered inside a budget of its own, for so many messages."""
    token = _budget.set(Budget(messages))
    try:
        yield
    finally:
        _budget.reset(token)


def remaining() -> Budget:
    """Return the budget of what is being rendered."""
    return _budget.get()


def spend(units: int = 0) -> None:
    """Count a step, and so many units more."""
    budget = _budget.get()
    budget.left -= STEP + units
    if budget.left < budget.look:
        budget.look_at_clock()


def fits(size: int, limit: int = MAX_TEXT, what: str = "characters in a text") -> None:
    """Refuse what would be too large, before it is made."""
    if size > limit:
        raise LimitReached(f"it wants more than {limit:,} {what}")


class TemplateList(list[Any]):
    """A list that the template made and may change."""

    __qualname__ = "list"  # for error messages


def made(value: Any) -> Any:
    """Count a new value by its memory, and return it; a list becomes a :class:`TemplateList`."""
    if isinstance(value, str):
        fits(len(value))
    else:
        fits(len(value), MAX_ITEMS, "items in a list")
    spend(sys.getsizeof(value))
    return TemplateList(value) if type(value) is list else value


def measured(*values: Any) -> int:
    """Count values, and return about how many characters they have when all is written out."""
    size, level = 0, list(values)
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            size += ITEM
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, Mapping):
                below += item.keys()
                below += item.values()
            elif isinstance(item, OpenNamespace):
                below.append(values_of(item))
            elif isinstance(item, Collection):
                below += item
            fits(size + ITEM * len(below))
        if not below:
            spend(size)
            return size
        level = below
    raise LimitReached(f"it nests values deeper than {MAX_DEPTH}")


def compared(value: Any) -> Any:
    """Count a value that is about to be compared or hashed."""
    if isinstance(value, str):
        spend(len(value) >> 4)
    elif type(value) not in SCALARS:
        measured(value)
    return value


def short(value: Any) -> Any:
    """Let a text pass that is short, and whatever is no text."""
    if isinstance(value, str):
        fits(len(value), MAX_SHORT, "characters where few will do")
    return value


def each(values: Iterable[Any]) -> Iterator[Any]:
    """Yield items, and count them."""
    for value in values:
        spend()
        yield value


class Lazy(Iterator[Any]):
    """Items that a filter makes when they are asked for."""

    # Python crashes on iterators over iterators over ..., some ten thousand deep.
    __slots__ = ("_depth", "_items")

    def __init__(self, source: Any, items: Iterable[Any]) -> None:
        self._depth: int = source._depth + 1 if isinstance(source, Lazy) else 1
        self._items = each(items)
        fits(self._depth, MAX_DEPTH, "filters of what filters make")
        spend(10 * STEP)

    def __next__(self) -> Any:
        return next(self._items)
