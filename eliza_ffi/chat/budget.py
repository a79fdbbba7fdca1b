"""The budget of time and memory for rendering a chat template, and functions that charge it.

The budget is counted in units. A step costs 100 units, and a new value costs 100 units plus one
unit for each of its bytes. The clock is checked only every 4,000 units. An operation that can take
longer than a step is therefore measured before it starts. It is charged by its size, and rejected
if it is too large.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.utils import Namespace

# More time for more messages, because some templates read all messages again for each message.
MAX_SECONDS, SECONDS_PER_MESSAGE = 1.0, 0.005
MAX_UNITS = 100_000_000

STEP = 100
"""The units that one step costs."""

MAX_TEXT = 10_000_000
"""The maximum length of a string that a template creates, in characters."""

MAX_ITEMS = 100_000
"""The maximum number of items of a list or mapping that a template creates."""

MAX_DEPTH = 50
"""The maximum nesting depth of values, and of calls."""

SCALARS = frozenset((bool, float, int, type(None)))
"""Types whose values are small and contain no other values."""

MAX_SHORT = 100  # characters of names, numbers, formats and other short arguments
CLOCK_INTERVAL = 40 * STEP  # units between two checks of the clock
ITEM = 20  # characters added for each item when a value is written out, such as quotes and commas


class LimitReached(Exception):  # noqa: N818 - an outcome
    """The template exceeds a limit."""


class Budget:
    """The units and the time that a template has left. Each message adds 5 ms to the time."""

    __slots__ = ("calls", "left", "next_check", "seconds", "until")

    def __init__(self, messages: int) -> None:
        self.calls = 0
        self.left = self.next_check = MAX_UNITS
        self.seconds = MAX_SECONDS + SECONDS_PER_MESSAGE * messages
        self.until = time.thread_time() + self.seconds

    def check(self) -> None:
        """Raise :class:`LimitReached` if no units or no time is left."""
        if self.left < 0:
            raise LimitReached("it takes too many steps or too much memory")
        if time.thread_time() > self.until:
            raise LimitReached(f"it takes longer than {self.seconds:g} seconds")
        self.next_check = max(0, self.left - CLOCK_INTERVAL)


_budget: ContextVar[Budget] = ContextVar("_budget")


@contextmanager
def bounded(messages: int = 0) -> Iterator[None]:
    """Give the rendering of a number of messages inside the ``with`` block its own budget."""
    token = _budget.set(Budget(messages))
    try:
        yield
    finally:
        _budget.reset(token)


def remaining() -> Budget:
    """Return the budget of the current rendering."""
    return _budget.get()


def spend(units: int = 0) -> None:
    """Charge one step and `units` more."""
    budget = _budget.get()
    budget.left -= STEP + units
    if budget.left < budget.next_check:
        budget.check()


def check_size(size: int, limit: int = MAX_TEXT, what: str = "characters in a string") -> None:
    """Raise :class:`LimitReached` if a value that is about to be created is too large."""
    if size > limit:
        raise LimitReached(f"it needs more than {limit:,} {what}")


class TemplateList(list[Any]):
    """A list that the template created and may change."""

    __qualname__ = "list"  # for error messages


class OpenNamespace(Namespace):
    """A namespace whose values the sandbox can read, to measure them.

    Jinja2's own class stores its values in a private attribute. This class stores them in its own
    dictionary. It relies only on two facts: a compiled template can assign to any instance of
    ``Namespace``, and it does so with ``namespace[name] = value``.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, name)
        try:
            return values_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        values_of(self)[name] = value

    def __repr__(self) -> str:
        return f"<Namespace {values_of(self)!r}>"


def values_of(namespace: OpenNamespace) -> dict[str, Any]:
    """Return the values of a namespace by name."""
    values: dict[str, Any] = object.__getattribute__(namespace, "_values")
    return values


def charge_new(value: Any) -> Any:
    """Charge the memory of a new value and return the value; lists become `TemplateList`s."""
    if isinstance(value, str):
        check_size(len(value))
    else:
        check_size(len(value), MAX_ITEMS, "items in a list")
    spend(sys.getsizeof(value))
    return TemplateList(value) if type(value) is list else value


def measure(*values: Any) -> int:
    """Return the approximate length of values written out, in characters, and charge it."""
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
            check_size(size + ITEM * len(below))
        if not below:
            spend(size)
            return size
        level = below
    raise LimitReached(f"it nests values deeper than {MAX_DEPTH}")


def charge_comparison(value: Any) -> Any:
    """Charge a value that is about to be compared or hashed, and return it."""
    if isinstance(value, str):
        spend(len(value) >> 4)
    elif type(value) not in SCALARS:
        measure(value)
    return value


def check_short(value: Any) -> Any:
    """Return a value; raise :class:`LimitReached` if it is a string of over 100 characters."""
    if isinstance(value, str):
        check_size(len(value), MAX_SHORT, "characters in a name or argument")
    return value


def counted(values: Iterable[Any]) -> Iterator[Any]:
    """Yield items, and charge a step for each."""
    for value in values:
        spend()
        yield value


class Lazy(Iterator[Any]):
    """The items of a lazy filter, computed on demand."""

    # The depth is limited because Python crashes on iterators nested some ten thousand deep.
    __slots__ = ("_depth", "_items")

    def __init__(self, source: Any, items: Iterable[Any]) -> None:
        self._depth: int = source._depth + 1 if isinstance(source, Lazy) else 1
        self._items = counted(items)
        check_size(self._depth, MAX_DEPTH, "nested lazy filters")
        spend(10 * STEP)

    def __next__(self) -> Any:
        return next(self._items)
