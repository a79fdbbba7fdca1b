"""Mutations of metadata: other values, other types, missing keys, additional keys."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gguf_file import ARRAY, BOOL, F32, F64, I32, INTEGERS, STRING, U16, U32, Entry, Gguf

from .mutation import (
    FLOATS,
    STAND_INS,
    STRINGS,
    Mutation,
    append,
    edited,
    integers_for,
    put,
    put_entry,
    remove,
    shown,
)

# The values for keys that the file does not have.
ADDITIONS: tuple[tuple[int, Any, int | None], ...] = (
    *((U32, value, None) for value in (0, 1, 2, 3, 7, 64, 1000, 2**31, 2**32 - 1)),
    *((F32, value, None) for value in (math.nan, 0.0, -1.0, 1e30)),
    *((BOOL, value, None) for value in (0, 1)),
    *((STRING, value, None) for value in (b"", b"linear", b"x")),
    (U16, 2, None),
    (ARRAY, [], U32),
    (ARRAY, [0, 0, 0, 0], U32),
    (ARRAY, [2**31, 1, 0, 2**32 - 1], U32),
    (ARRAY, [-1, 0, 1, 2], I32),
    (ARRAY, [1] * 600, U32),
    (ARRAY, [0.0, math.nan, -1.0, 1.0], F32),
    (ARRAY, [b"", b"a"], STRING),
    (ARRAY, [1, 0, 1, 0], BOOL),
)


def scalars(base: Gguf) -> Iterator[Mutation]:
    """For each key, yield other values, other types, a missing key, and a duplicate key."""
    for entry in base.entries:
        yield from _of_entry(base, entry)


def _of_entry(base: Gguf, entry: Entry) -> Iterator[Mutation]:
    key = entry.key.decode()
    stated = base.get(base.architecture() + b".block_count")
    n_layers = stated if isinstance(stated, int) else 1

    def change(kind: str, to: Any, as_kind: int = entry.kind, of: int | None = None) -> Mutation:
        what = f"{key} = {shown(to)} (type {as_kind})"
        return edited(base, kind, what, put(entry.key, as_kind, to, of))

    if entry.kind in INTEGERS:
        for number in integers_for(entry.kind, entry.value, n_layers):
            yield change("integer", number)
    elif entry.kind in (F32, F64):
        for real in FLOATS:
            yield change("float", real)
    elif entry.kind == BOOL:
        for bit in (0, 1, 2, 255):
            yield change("bool", bit)
    elif entry.kind == STRING:
        for text in STRINGS:
            yield change("string", text)
    if (
        entry.kind == U32 and 0 < n_layers <= 512
    ):  # a number that may be an array with one number per layer
        for last in (0, 1, entry.value + 1):
            values = [entry.value] * (n_layers - 1) + [min(last, 2**32 - 1)]
            yield change("layers", values, ARRAY, U32)
    for as_kind, value, item_kind in STAND_INS:
        if (as_kind, item_kind) != (entry.kind, entry.item_kind):
            yield change("type", value, as_kind, item_kind)
    yield edited(base, "key", f"without {key}", remove(entry.key))
    yield edited(base, "key", f"{key} twice", append(entry))
    for unknown in (ARRAY, 13, 99, 2**32 - 1):
        nothing: Any = [] if unknown == ARRAY else bytes(16)
        raw = Entry(entry.key, unknown, nothing, ARRAY)
        yield edited(base, "type", f"{key} of type {unknown}", put_entry(raw))


def arrays(base: Gguf) -> Iterator[Mutation]:
    """For each array, yield shorter, longer and empty ones, and ones with unusual items."""
    for entry in base.entries:
        if entry.kind != ARRAY or not entry.value:
            continue
        key, items = entry.key.decode(), list(entry.value)
        versions: dict[str, list[Any]] = {
            "empty": [],
            "one item": items[:1],
            "half": items[: len(items) // 2],
            "one less": items[:-1],
            "one more": [*items, items[-1]],
            "twice": items * 2,
            "reversed": items[::-1],
            "all the same": items[:1] * len(items),
        }
        strange: tuple[Any, ...] = ()
        if entry.item_kind == STRING:
            strange = (b"", b" ", b"\xff", b"a\0b", b"w" * 100_000, b"one two three", b"\xf0\x9f")
        elif entry.item_kind in (F32, F64):
            strange = FLOATS
        elif entry.item_kind is not None:
            strange = tuple(integers_for(entry.item_kind, 0, 4))
        for item in strange:
            for where in (0, 1, 5, len(items) // 2, len(items) - 1):
                if where < len(items):
                    versions[f"[{where}] = {shown(item)}"] = [
                        *items[:where],
                        item,
                        *items[where + 1 :],
                    ]
            versions[f"all {shown(item)}"] = [item] * len(items)
        for what, value in versions.items():
            edit = put(entry.key, ARRAY, value, entry.item_kind)
            yield edited(base, "array", f"{key}: {what}", edit)


def additions(base: Gguf, keys: Iterable[str]) -> Iterator[Mutation]:
    """Yield files with one additional key that llama.cpp knows."""
    for pattern in keys:
        key = pattern.replace("%s", base.architecture().decode()).encode()
        if base.index(key) is not None or b"%" in key:
            continue
        for kind, value, item_kind in ADDITIONS:
            what = f"{key.decode()} = {shown(value)} (type {kind})"
            yield edited(base, "addition", what, put(key, kind, value, item_kind))


def architectures(base: Gguf, names: Iterable[str]) -> Iterator[Mutation]:
    """Yield files with each architecture's name, with this file's keys kept and renamed."""
    mine = base.architecture()
    for name in names:
        other = name.encode()
        yield edited(
            base,
            "architecture",
            f"{name}, keys as they were",
            put(b"general.architecture", STRING, other),
        )

        def rename(gguf: Gguf, other: bytes = other) -> None:
            for i, entry in enumerate(gguf.entries):
                if entry.key.startswith(mine + b"."):
                    gguf.entries[i] = replace(entry, key=other + entry.key[len(mine) :])
            gguf.put(Entry(b"general.architecture", STRING, other))

        yield edited(base, "architecture", f"{name}, keys renamed", rename)


def pairs(base: Gguf, dice: random.Random, count: int) -> Iterator[Mutation]:
    """Yield files with two changed scalars."""
    numbers = [i for i, entry in enumerate(base.entries) if entry.kind in (*INTEGERS, F32, BOOL)]
    for _ in range(count if len(numbers) > 1 else 0):
        edits, changes = [], []
        for at in dice.sample(numbers, 2):
            entry = base.entries[at]
            if entry.kind in INTEGERS:
                value: Any = dice.choice(integers_for(entry.kind, entry.value, 4))
            else:
                value = dice.choice(FLOATS) if entry.kind == F32 else dice.choice((0, 1, 2))
            edits.append(put(entry.key, entry.kind, value))
            changes.append(f"{entry.key.decode()} = {value}")
        yield edited(base, "pair", ", ".join(changes), *edits)
