"""Mutations of metadata: other values, other types, missing keys, additional keys."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gguf_file import ARRAY, BOOL, F32, F64, I32, INTEGERS, STRING, U16, U32, Entry, Gguf

from .edits import (
    FLOATS,
    STAND_INS,
    STRINGS,
    Change,
    Value,
    append,
    integers_for,
    put,
    remove,
    shown,
)

# The values for keys that the file does not have.
ADDITIONS: tuple[Value, ...] = (
    *((U32, value, None) for value in (0, 1, 2, 3, 7, 64, 1000, 2**31, 2**32 - 1)),
    *((F32, value, None) for value in (math.nan, 0.0, -1.0, 1e30)),
    *((BOOL, value, None) for value in (0, 1)),
    *((STRING, value, None) for value in (b"", b"linear", b"x")),
    (U16, 2, None),
    *((ARRAY, value, U32) for value in ([], [0] * 4, [2**31, 1, 0, 2**32 - 1], [1] * 600)),
    (ARRAY, [-1, 0, 1, 2], I32),
    (ARRAY, [0.0, math.nan, -1.0, 1.0], F32),
    (ARRAY, [b"", b"a"], STRING),
    (ARRAY, [1, 0, 1, 0], BOOL),
)
STRANGE_TEXTS = (b"", b" ", b"\xff", b"a\0b", b"w" * 100_000, b"one two three", b"\xf0\x9f")


def scalars(base: Gguf) -> Iterator[Change]:
    """For each key, yield other values, other types, a missing key, and a duplicate key."""
    stated = base.get(base.architecture() + b".block_count")
    n_layers = stated if isinstance(stated, int) else 1
    for entry in base.entries:
        key = entry.key.decode()
        values: list[Value] = [(entry.kind, each, None) for each in values_for(entry, n_layers)]
        if entry.kind == U32 and 0 < n_layers <= 512:  # may be an array with a number per layer
            for last in (0, 1, min(entry.value + 1, 2**32 - 1)):
                values.append((ARRAY, [entry.value] * (n_layers - 1) + [last], U32))
        values += [each for each in STAND_INS if each[::2] != (entry.kind, entry.item_kind)]
        for kind, value, item_kind in values:
            edit = put(entry.key, kind, value, item_kind)
            yield f"{key} = {shown(value)} (type {kind})", [edit]
        yield f"without {key}", [remove(entry.key)]
        yield f"{key} twice", [append(entry)]
        for unknown in (ARRAY, 13, 99, 2**32 - 1):
            nothing: Any = [] if unknown == ARRAY else bytes(16)
            yield f"{key} of type {unknown}", [put(entry.key, unknown, nothing, ARRAY)]


def values_for(entry: Entry, n_layers: int) -> Iterable[Any]:
    """Return other values of the same type."""
    if entry.kind in INTEGERS:
        return integers_for(entry.kind, entry.value, n_layers)
    others: dict[int, Iterable[Any]] = {F32: FLOATS, F64: FLOATS, BOOL: (0, 1, 2, 255)}
    return {**others, STRING: STRINGS}.get(entry.kind, ())


def arrays(base: Gguf) -> Iterator[Change]:
    """For each array, yield shorter, longer and empty ones, and ones with unusual items."""
    for entry in base.entries:
        if entry.kind != ARRAY or not entry.value:
            continue
        items = list(entry.value)
        n = len(items)
        versions: dict[str, list[Any]] = {
            "empty": [],
            "one item": items[:1],
            "half": items[: n // 2],
            "one less": items[:-1],
            "one more": [*items, items[-1]],
            "twice": items * 2,
            "reversed": items[::-1],
            "all the same": items[:1] * n,
        }
        strange: Iterable[Any] = FLOATS
        if entry.item_kind == STRING:
            strange = STRANGE_TEXTS
        elif entry.item_kind in INTEGERS:
            strange = integers_for(entry.item_kind, 0, 4)
        for item in strange:
            for at in (0, 1, 5, n // 2, n - 1):
                if at < n:
                    versions[f"[{at}] = {shown(item)}"] = [*items[:at], item, *items[at + 1 :]]
            versions[f"all {shown(item)}"] = [item] * n
        for what, value in versions.items():
            edit = put(entry.key, ARRAY, value, entry.item_kind)
            yield f"{entry.key.decode()}: {what}", [edit]


def additions(base: Gguf, keys: Iterable[str]) -> Iterator[Change]:
    """Yield files with one additional key that llama.cpp knows."""
    for pattern in keys:
        key = pattern.replace("%s", base.architecture().decode())
        if base.index(key.encode()) is None and "%" not in key:
            for kind, value, item_kind in ADDITIONS:
                edit = put(key.encode(), kind, value, item_kind)
                yield f"{key} = {shown(value)} (type {kind})", [edit]


def architectures(base: Gguf, names: Iterable[str]) -> Iterator[Change]:
    """Yield files with each architecture's name, with this file's keys kept and renamed."""
    mine = base.architecture()
    for name in names:
        other = name.encode()

        def rename(gguf: Gguf, other: bytes = other) -> None:
            for i, entry in enumerate(gguf.entries):
                if entry.key.startswith(mine + b"."):
                    gguf.entries[i] = replace(entry, key=other + entry.key[len(mine) :])

        edit = put(b"general.architecture", STRING, other)
        yield f"{name}, keys as they were", [edit]
        yield f"{name}, keys renamed", [rename, edit]


def pairs(base: Gguf, dice: random.Random, count: int) -> Iterator[Change]:
    """Yield files with two changed scalars."""
    numbers = [entry for entry in base.entries if entry.kind in (*INTEGERS, F32, BOOL)]
    for _ in range(count if len(numbers) > 1 else 0):
        drawn = [(e.key, e.kind, dice.choice([*values_for(e, 4)])) for e in dice.sample(numbers, 2)]
        what = ", ".join(f"{key.decode()} = {value}" for key, _, value in drawn)
        yield what, [put(*each) for each in drawn]
