"""The time and the memory that a chat template may use. Each operation is small and charges a
budget, so that the clock is checked soon after it."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from jinja2.utils import Namespace

# More time for more messages, because some templates read all messages again for each message.
MAX_SECONDS, SECONDS_PER_MESSAGE = 1.0, 0.005
MAX_UNITS = 100_000_000
STEP = 100  # units of a step, and of an item of a new list
CLOCK_INTERVAL = 20_000  # units between two checks of the clock

MAX_TEXT = 10_000_000  # characters of a string that a template creates
MAX_ITEMS = 100_000  # items of a list or mapping that a template creates
MAX_BITS = 10_000  # bits of a number
MAX_DEPTH = 50  # levels of nested values, and of nested calls
SCALARS = frozenset((bool, float, int, type(None)))
ESCAPED = 10  # maximum length of one character in `repr`
ITEM = 20  # characters added for each item when a value is written out, such as quotes and commas


class LimitReached(Exception):  # noqa: N818 - an outcome
    """The template exceeds a limit."""


class Budget:
    """The units and the time that a rendering has left."""

    def __init__(self, messages: int) -> None:
        self.calls = 0
        self.left = MAX_UNITS
        self.next_check = MAX_UNITS - CLOCK_INTERVAL
        self.seconds = MAX_SECONDS + SECONDS_PER_MESSAGE * messages
        self.until = time.thread_time() + self.seconds


_budget: ContextVar[Budget] = ContextVar("_budget")
remaining = _budget.get  # returns the budget of the current rendering


@contextmanager
def bounded(messages: int = 0) -> Iterator[None]:
    """Give the rendering of a number of messages inside the ``with`` block its own budget."""
    token = _budget.set(Budget(messages))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(units: int = STEP) -> None:
    """Charge units. Raise :class:`LimitReached` if no units or no time is left."""
    budget = _budget.get()
    budget.left -= units
    if budget.left < budget.next_check:
        if budget.left < 0:
            raise LimitReached("it takes too many steps or too much memory")
        if time.thread_time() > budget.until:
            raise LimitReached(f"it takes longer than {budget.seconds:g} seconds")
        budget.next_check = max(0, budget.left - CLOCK_INTERVAL)


def check_size(size: int, limit: int = MAX_TEXT, what: str = "characters in a string") -> None:
    """Raise :class:`LimitReached` if a value that is about to be created or read is too large."""
    if size > limit:
        raise LimitReached(f"it needs more than {limit:,} {what}")


class TemplateList(list[Any]):
    """A list that the template created and may change."""

    __qualname__ = "list"  # for error messages


def charge(value: Any) -> Any:
    """Charge the memory of a new value and return the value; lists become `TemplateList`s."""
    if isinstance(value, str):
        check_size(len(value))
        spend(STEP + sys.getsizeof(value))
    elif isinstance(value, list | tuple | dict):
        check_size(len(value), MAX_ITEMS, "items in a list or mapping")
        spend(STEP * (1 + len(value)) + sys.getsizeof(value))
        return TemplateList(value) if type(value) is list else value
    elif isinstance(value, int):
        check_size(value.bit_length(), MAX_BITS, "bits in a number")
    return value


def items_of(values: Any) -> Any:
    """Return the items of any iterable as a new list."""
    return charge(list(islice(values, MAX_ITEMS + 1)))


def measure(*values: Any) -> int:
    """Return the approximate length of values written out, and charge its reading. A value may
    contain another one several times, so it can be much longer than its memory."""
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
            elif isinstance(item, Namespace):
                raise LimitReached("it nests a namespace in a value that it writes or compares")
            elif isinstance(item, Collection):
                below += item
            check_size(size + ITEM * len(below), MAX_TEXT, "characters in a value")
        if not below:
            spend(STEP + size // 16)
            return size
        level = below
    raise LimitReached(f"it nests values deeper than {MAX_DEPTH}")


def measured(value: Any) -> Any:
    """Return a value that is about to be compared, hashed or passed to a function."""
    if type(value) is str:
        spend(STEP + len(value) // 16)
    elif isinstance(value, Iterator):  # made by a filter such as `map`
        return measured(items_of(value))
    elif type(value) not in SCALARS:
        measure(value)
    return value


def text(value: Any) -> str:
    if isinstance(value, str) or type(value) in SCALARS:
        return str(value)
    check_size(ESCAPED * measure(value))
    written: str = charge(str(value))
    return written


def join_texts(pieces: Iterable[str], separator: str = "") -> str:
    """Join strings, and stop at the maximum length."""
    size, parts = 0, []
    for piece in pieces:
        size += len(piece) + len(separator)
        check_size(size)
        parts.append(piece)
    joined: str = charge(separator.join(parts))
    return joined


def counted(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a loop, and charge a step for each."""
    for value in values:
        spend()
        yield value
