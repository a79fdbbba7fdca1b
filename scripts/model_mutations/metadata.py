"""Mutations of metadata: other values, other types, missing and additional keys, vocabularies."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gguf_file import (
    ARRAY,
    BOOL,
    F32,
    F64,
    FORMATS,
    I8,
    I32,
    INTEGERS,
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


# ---- Values and keys -----------------------------------------------------------------------------

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
    numbers = [entry for entry in base.entries if entry.kind in (*INTEGERS, F32, BOOL)]
    for _ in range(count if len(numbers) > 1 else 0):
        drawn = [(e.key, e.kind, dice.choice([*values_for(e, 4)])) for e in dice.sample(numbers, 2)]
        what = ", ".join(f"{key.decode()} = {value}" for key, _, value in drawn)
        yield what, [put(*each) for each in drawn]


# ---- Vocabularies --------------------------------------------------------------------------------

PREFIX = b"tokenizer.ggml."
TOKENIZERS = (
    *("no_vocab", "none", "llama", "bert", "gpt2", "t5", "rwkv", "plamo2", "plamo3"),
    *("gemma4", "hybriddna", "whitespace", "test", "replit"),
)
SPECIAL = (
    *("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "cls"),
    *("prefix", "suffix", "middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad"),
)
CHARSMAPS = {  # a size, then as many bytes
    "empty": b"",
    "short": b"\1\0",
    "no blob": struct.pack("<I", 0) + b"\0",
    "size beyond": struct.pack("<I", 2**32 - 1) + b"\0" * 64,
    "size wraps": struct.pack("<I", 2**32 - 4) + b"\0" * 64,
    "zeros": struct.pack("<I", 1024) + b"\0" * 1100,
    "ones": struct.pack("<I", 1024) + b"\xff" * 1100,
    "leaves": struct.pack("<257I", 1024, *[0x80000000 | 2**30] * 256),
    "leaves to the end": struct.pack("<257I", 1024, *[0x100 | 65] * 256) + b"xy",
    "odd size": struct.pack("<I", 1023) + b"\x41" * 1100,
}


def tokenizers(base: Gguf, pre_tokenizers: Iterable[str]) -> Iterator[Change]:
    """Yield vocabularies of every tokenizer, with and without the data that it needs."""
    n = len(base.get(PREFIX + b"tokens") or ())
    if not n:
        return
    scores = put(PREFIX + b"scores", ARRAY, [-float(i) for i in range(n)], F32)
    no_scores, no_merges = remove(PREFIX + b"scores"), remove(PREFIX + b"merges")
    plain = [f"t{i}".encode() for i in range(n)]
    unusual = {
        "plain": plain,
        "bytes": [*(f"<0x{i:02X}>".encode() for i in range(256)), *plain[256:]][:n],
        "bert": [b"[UNK]", b"[CLS]", b"[SEP]", b"[PAD]", b"[MASK]", *plain[5:]],
        "escapes": [f"\\x{i % 256:02x}".encode() + b"a" * (i // 256) for i in range(n)],
        "broken escapes": [b"\\x", b"\\", b"\\xz", b"b'\\", *plain[4:]],
    }
    for name in TOKENIZERS:
        model = put(PREFIX + b"model", STRING, name.encode())
        yield name, [model]
        yield f"{name}, scores", [model, scores]
        yield f"{name}, no merges", [model, no_merges]
        yield f"{name}, no scores, no merges", [model, no_scores, no_merges]
        for what, texts in unusual.items():
            edits = [model, scores, put(PREFIX + b"tokens", ARRAY, texts, STRING)]
            yield f"{name}, {what}", edits
            for kind in range(7):
                kinds = put(PREFIX + b"token_type", ARRAY, [kind] * len(texts), I32)
                yield f"{name}, {what}, all of type {kind}", [*edits, kinds]
        for what, blob in CHARSMAPS.items() if name in ("t5", "llama") else ():
            edit = put(PREFIX + b"precompiled_charsmap", ARRAY, list(blob), U8)
            yield f"{name}, charsmap {what}", [model, scores, edit]
        for bos, eos in itertools.product((0, 1), repeat=2):
            flags = {b"add_bos_token": bos, b"add_eos_token": eos, b"add_sep_token": bos}
            yield (
                f"{name}, add bos {bos}, eos {eos}, none given",
                [
                    *(model, scores),
                    *(put(PREFIX + flag, BOOL, value) for flag, value in flags.items()),
                    *(remove(PREFIX + each + b"_token_id") for each in (b"bos", b"eos", b"eot")),
                ],
            )
    for key in SPECIAL:
        full = PREFIX + f"{key}_token_id".encode()
        for number in (0, n - 1, n, 2**31 - 1, 2**31, 2**32 - 1, -1, -(2**31)):
            edit = put(full, I32 if number < 0 else U32, number)
            yield f"{full.decode()} = {number}", [edit]
    for pre in pre_tokenizers:
        yield f"pre-tokenizer {pre}", [put(PREFIX + b"pre", STRING, pre.encode())]
    for model_name in ("phi-3", "Phi3 mini", "modern-bert", "jina-v2-de"):
        edit = put(b"general.name", STRING, model_name.encode())
        yield f"general.name {model_name}", [edit]
