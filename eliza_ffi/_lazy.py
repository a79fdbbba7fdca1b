"""Values that are computed once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy_property(Generic[Owner, Value]):  # noqa: N801 - used like the built-in property
    """A property that is computed at the first access and then kept in the instance.

    Unlike :class:`functools.cached_property` before Python 3.12, it has no lock, which a forked
    process could wait for. Two threads may compute a value at the same time; the last one is kept.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Owner], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Owner]) -> lazy_property[Owner, Value]: ...

    @overload
    def __get__(self, instance: Owner, owner: type[Owner] | None = None) -> Value: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self._compute(instance)
        vars(instance)[self._name] = value  # found before this descriptor from now on
        return value


def once_for_each(compute: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
    """Compute a value once for each object, and keep it as long as the object, to which the value
    must not refer. Two threads may compute a value at the same time; the first one is kept."""
    known: WeakKeyDictionary[Owner, Value] = WeakKeyDictionary()

    @functools.wraps(compute)
    def kept(owner: Owner) -> Value:
        if owner not in known:
            known.setdefault(owner, compute(owner))
        return known[owner]

    return kept


class Recent(Generic[Value]):
    """The most recently used values by key, at most `most`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[Hashable, Value] = {}

    def find(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None. The value counts as used."""
        with self._lock:
            value = self._kept.pop(key, None)
            if value is not None:
                self._kept[key] = value  # at the end; the least recently used one is the first
            return value

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key. If there is none, make the value and keep it."""
        with self._lock:
            value = self._kept.pop(key, None)
        if value is None:
            value = make()
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return value
