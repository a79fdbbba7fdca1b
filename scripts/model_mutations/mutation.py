"""Define a mutation, the basic edits, and the values that most mutations use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gguf_file import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Entry,
    Gguf,
)

Edit = Callable[[Gguf], None]
Files = dict[str, bytes]


@dataclass(frozen=True)
class Mutation:
    """One way to break a file."""

    kind: str  # its row in the table, such as ``"integer"``
    what: str  # a description, such as ``"llama.block_count = 0"``
    # Returns the files by name. The first is the one to open; ``lora.gguf`` is an adapter to load
    # with it.
    files: Callable[[], Files]


def edited(base: Gguf, kind: str, what: str, *edits: Edit) -> Mutation:
    def files() -> Files:
        gguf = base.copy()
        for edit in edits:
            edit(gguf)
        return {"model.gguf": gguf.to_bytes()}

    return Mutation(kind, what, files)


def put(key: bytes, kind: int, value: Any, item_kind: int | None = None) -> Edit:
    return lambda gguf: gguf.put(Entry(key, kind, value, item_kind))


def put_entry(entry: Entry) -> Edit:
    return lambda gguf: gguf.put(entry)


def append(entry: Entry) -> Edit:
    return lambda gguf: gguf.entries.append(entry)


def set_field(name: str, value: Any) -> Edit:
    return lambda gguf: setattr(gguf, name, value)


def remove(key: bytes) -> Edit:
    def edit(gguf: Gguf) -> None:
        gguf.entries = [entry for entry in gguf.entries if entry.key != key]

    return edit


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:30]}... ({len(text)} characters)"


def integers_for(kind: int, value: int, n_layers: int) -> list[int]:
    """Return interesting integers in a type's range, near limits and near the present value."""
    low, high = {
        U8: (0, 2**8 - 1),
        I8: (-(2**7), 2**7 - 1),
        U16: (0, 2**16 - 1),
        I16: (-(2**15), 2**15 - 1),
        U32: (0, 2**32 - 1),
        I32: (-(2**31), 2**31 - 1),
        U64: (0, 2**64 - 1),
        I64: (-(2**63), 2**63 - 1),
    }[kind]
    wanted = {0, 1, 2, 3, 5, 7, -1, value - 1, value + 1, value * 2, value // 2, n_layers}
    wanted |= {n_layers + 1, 64, 127, 255, 256, 512, 513, 1000, 4096, 65535, 65536, 10**6}
    wanted |= {2**24 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, low, high}
    return sorted(each for each in wanted if low <= each <= high and each != value)


FLOATS = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-45, 1e-20, 0.5, 1.0, 1e6, 1e20, 3e38)
STRINGS = (b"", b"x", b"\xff\xfe\xc0", b"a\0b", b"%s%n%d", b"none", b"y" * 300, b"z" * 100_000)
# A value of each type, to replace a value of another type.
STAND_INS: tuple[tuple[int, Any, int | None], ...] = (
    (U8, 1, None),
    (I8, -1, None),
    (U16, 1, None),
    (I32, -1, None),
    (U32, 1, None),
    (U64, 1, None),
    (F32, 1.0, None),
    (F64, 1.0, None),
    (BOOL, 1, None),
    (STRING, b"1", None),
    (ARRAY, [], U32),
    (ARRAY, [1, 1, 1, 1], U32),
    (ARRAY, [1, 1, 1, 1], I32),
    (ARRAY, [1.0] * 4, F32),
    (ARRAY, [b"a", b"b"], STRING),
    (ARRAY, [1, 1, 1, 1], BOOL),
    (ARRAY, [1, 1, 1, 1], U8),
)
