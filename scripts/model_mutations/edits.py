"""Edits of a GGUF file, and the values that most of them write."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from gguf_file import (
    ARRAY,
    BOOL,
    F32,
    F64,
    FORMATS,
    I8,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Entry,
    Gguf,
)

Edit = Callable[[Gguf], object]
Change = tuple[str, Sequence[Edit]]
"""A description, and the edits of a file."""

FLOATS = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-45, 1e-20, 0.5, 1.0, 1e6, 1e20, 3e38)
STRINGS = (b"", b"x", b"\xff\xfe\xc0", b"a\0b", b"%s%n%d", b"none", b"y" * 300, b"z" * 100_000)

Value = tuple[int, Any, "int | None"]
STAND_INS: tuple[Value, ...] = (
    *((kind, 1, None) for kind in (U8, U16, U32, U64, BOOL)),
    *((kind, -1, None) for kind in (I8, I32)),
    *((kind, 1.0, None) for kind in (F32, F64)),
    (STRING, b"1", None),
    (ARRAY, [], U32),
    *((ARRAY, [1] * 4, kind) for kind in (U32, I32, BOOL, U8)),
    (ARRAY, [1.0] * 4, F32),
    (ARRAY, [b"a", b"b"], STRING),
)
"""A value of each type, to replace a value of another type: type, value, and type of the items."""


def applied(base: Gguf, edits: Sequence[Edit]) -> bytes:
    """Return the bytes of a file after some edits."""
    gguf = base.copy()
    for edit in edits:
        edit(gguf)
    return gguf.to_bytes()


def put(key: bytes, kind: int, value: Any, item_kind: int | None = None) -> Edit:
    return lambda gguf: gguf.put(Entry(key, kind, value, item_kind))


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
    bits, is_signed = 8 * struct.calcsize(FORMATS[kind]), FORMATS[kind].islower()
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    wanted = {0, 1, 2, 3, 5, 7, -1, value - 1, value + 1, value * 2, value // 2, n_layers}
    wanted |= {n_layers + 1, 64, 127, 255, 256, 512, 513, 1000, 4096, 65535, 65536, 10**6}
    wanted |= {2**24 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, low, high}
    return sorted(each for each in wanted if low <= each <= high and each != value)
