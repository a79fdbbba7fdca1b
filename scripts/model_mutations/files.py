"""Mutations of tensors, headers and bytes, of models in several files, and of LoRA adapters."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gguf_file import ARRAY, BLOCKS, F32, I32, STRING, U16, U32, U64, Entry, Gguf, Tensor

from .metadata import (
    FLOATS,
    STAND_INS,
    Change,
    Edit,
    applied,
    put,
    remove,
    scalars,
    set_field,
    shown,
)

Files = dict[str, bytes]
Broken = tuple[str, Callable[[], Files]]
"""A description, and a function that returns the files."""

NAMES = (
    *(b"", b"x", b"n" * 63, b"n" * 64, b"n" * 65, b"a\0b", b"\xff"),
    *(b"blk.0.ffn_gate_inp.weight", b"blk.99.attn_q.weight", b"rope_freqs.weight", b"output.bias"),
)
SIZES = (0, 1, 31, 32, 33, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)
OFFSETS = (1, 31, 32, 2**31, 2**40, 2**63, 2**64 - 32, 2**64 - 1)


def model_of(data: bytes) -> Files:
    return {"model.gguf": data}


def tensors(base: Gguf) -> Iterator[Change]:
    """Yield files whose tensors have other names, sizes, types and offsets, or are missing."""
    for i, tensor in enumerate(base.tensors):
        name = tensor.name.decode()
        if name.startswith("blk.") and not name.startswith("blk.0."):
            continue  # all layers are alike

        def drop(gguf: Gguf, i: int = i) -> None:
            del gguf.tensors[i]

        def repeat(gguf: Gguf, i: int = i) -> None:
            gguf.tensors.append(gguf.tensors[i])

        yield f"without {name}", [drop, Gguf.place_tensors]
        yield f"{name} twice", [repeat, Gguf.place_tensors]
        for what, parts in _others(base, i):

            def change(gguf: Gguf, i: int = i, parts: dict[str, Any] = parts) -> None:
                gguf.tensors[i] = replace(gguf.tensors[i], **parts)

            yield f"{name}: {what}", [change, *([Gguf.place_tensors] if len(parts) == 2 else [])]


def _others(base: Gguf, i: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield descriptions, and the changed fields of a tensor."""
    tensor = base.tensors[i]
    dims, stem = tensor.dims, tensor.name[:-7]
    for name in (*NAMES, stem + b".bias", stem + b".scale"):
        yield f"named {shown(name)}", {"name": name}
    others = [(*dims[:d], size, *dims[d + 1 :]) for size in SIZES for d in range(len(dims))]
    others += [(), dims[::-1], (*dims, 1), (*dims, 2), (*dims, 0), (*dims, 1, 1, 1)]
    others += [(math.prod(dims),), (2**33, 2**33), (2**21, 2**21, 2**21, 2)]
    for other in others:
        yield f"dims {other}", {"dims": other}
    for kind in (*range(45), 2**31, 2**32 - 1):
        yield f"type {kind}", {"kind": kind}
    for kind, (n_items, n_bytes) in BLOCKS.items():
        if kind != tensor.kind:
            data = bytes(math.prod(dims) // n_items * n_bytes)
            yield f"of type {kind}, zeros", {"kind": kind, "data": data}
    for offset in OFFSETS:
        yield f"offset {offset}", {"offset": offset}
    for real in FLOATS if len(tensor.data) > 64 and tensor.kind == 0 else ():
        yield f"all {real}", {"data": struct.pack("<f", real) * (len(tensor.data) // 4)}
    yield "all ones", {"data": b"\xff" * len(tensor.data)}


def layout(base: Gguf) -> Iterator[Change]:
    """Yield files with another magic, version, counts, alignment or split keys."""
    wrong = (0, 1, 10**6, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)
    n_entries, n_tensors = len(base.entries), len(base.tensors)
    fields: dict[str, tuple[Any, ...]] = {
        "magic": (b"GGUF"[::-1], b"GGML", b"\0\0\0\0", b"gguf"),
        "version": (0, 1, 2, 4, 255, 3 << 24, 2**32 - 1),
        "n_entries": (*wrong, n_entries - 1, n_entries + 1),
        "n_tensors": (*wrong, n_tensors - 1, n_tensors + 1),
    }
    for name, values in fields.items():
        for value in values:
            yield f"{name} = {shown(value)}", [set_field(name, value)]
    alignments: list[tuple[int, Any]] = [(U64, 32), (STRING, b"32"), (I32, 32)]
    for exact in (0, 1, 2, 4, 8, 16, 31, 33, 64, 4096, 2**16, 2**31, 2**32 - 1):
        alignments.append((U32, exact))
    for kind, value in alignments:
        edit = put(b"general.alignment", kind, value)
        yield f"general.alignment = {value} (type {kind})", [edit]
        yield f"general.alignment = {value} (type {kind}), placed", [edit, Gguf.place_tensors]
    of_split = (b"split.count", b"split.no", b"split.tensors.count")
    counted = put(of_split[2], I32, n_tensors)
    numbers: tuple[int | None, ...] = (None, 0, 1, 65535)
    for count, number in itertools.product((0, 1, 2, 3, 65535), numbers):
        edits = [put(of_split[0], U16, count)]
        if number is not None:
            edits.append(put(of_split[1], U16, number))
        yield f"split {number} of {count}", edits
        yield f"split {number} of {count}, tensors counted", [*edits, counted]
    for kind, value, item_kind in STAND_INS:
        for key in of_split:
            edits = [put(of_split[0], U16, 2), put(of_split[1], U16, 0), counted]
            edits.append(put(key, kind, value, item_kind))
            yield f"{key.decode()} = {shown(value)} (type {kind})", edits


def truncations(base: Gguf) -> Iterator[Broken]:
    """Yield files cut near the edges of their parts, and one with trailing bytes."""
    data, edges = base.to_bytes(), base.edges()
    cuts = {cut + more for cut in edges for more in (0, 1, 8)} | set(range(0, 64, 3))
    for cut in sorted({*cuts, len(data) - 1, len(data) - 32, len(data) // 2}):
        yield f"after {cut} bytes", partial(model_of, data[:cut])
    yield "1 MiB more", partial(model_of, data + bytes(1 << 20))


def flips(base: Gguf, dice: random.Random, count: int) -> Iterator[Broken]:
    """Yield files with one to eight changed bytes in the header."""
    data = base.to_bytes()
    begin, *edges, end = base.edges()
    # Most of the header is the vocabulary, so half of the changes are made elsewhere in it.
    is_array = [False, False, *(entry.kind == ARRAY for entry in base.entries)]
    rest = [begin, *(at for i, at in enumerate(edges) if i >= len(is_array) or not is_array[i])]

    def files(seed: int) -> Files:
        own = random.Random(seed)
        broken = bytearray(data)
        for _ in range(own.choice((1, 1, 2, 4, 8))):
            at = own.randrange(end)
            if own.random() < 0.5:
                at = min(own.choice(rest) + own.randrange(64), end - 1)
            flipped = broken[at] ^ 1 << own.randrange(8)
            broken[at] = own.choice((own.randrange(256), flipped, 0, 255))
        return model_of(bytes(broken))

    for number in range(count):
        seed = dice.getrandbits(32)
        yield f"bytes, {number} (seed {seed})", partial(files, seed)


# ---- Files beside the model ----------------------------------------------------------------------

RANK = 4


def splits(base: Gguf) -> Iterator[Broken]:
    """Yield models in two files, whose second file does not match the first."""
    half = len(base.tensors) // 2

    def files(edits: Sequence[Edit]) -> Files:
        first = replace(base.copy(), tensors=base.tensors[:half])
        second = Gguf([], base.tensors[half:])
        for number, part in enumerate((first, second)):
            part.put(Entry(b"split.count", U16, 2))
            part.put(Entry(b"split.no", U16, number))
            part.put(Entry(b"split.tensors.count", I32, len(base.tensors)))
            part.place_tensors()
        names = ("part-00001-of-00002.gguf", "part-00002-of-00002.gguf")
        return dict(zip(names, (first.to_bytes(), applied(second, edits)), strict=True))

    def twice(gguf: Gguf) -> None:
        gguf.tensors.append(base.tensors[0])
        gguf.place_tensors()

    def beyond(gguf: Gguf) -> None:
        gguf.tensors[-1] = replace(gguf.tensors[-1], dims=(2**40, 2**20))

    changes: dict[str, Edit | None] = {
        "as it should be": None,
        "second without split.no": remove(b"split.no"),
        "second without tensors": lambda gguf: gguf.tensors.clear(),
        "a tensor in both": twice,
        "second with a tensor beyond its end": beyond,
    }
    for kind, value, item_kind in (*STAND_INS, (U16, 0, None), (U16, 7, None)):
        edit = put(b"split.no", kind, value, item_kind)
        changes[f"second split.no = {shown(value)} (type {kind})"] = edit
    for name, count in itertools.product(("n_tensors", "n_entries"), (0, 2**32, 2**63)):
        changes[f"second with {name} = {count}"] = set_field(name, count)
    for what, change in changes.items():
        edits = [] if change is None else [change]
        yield what, partial(files, edits)


def adapters(base: Gguf) -> Iterator[Broken]:
    """Yield broken LoRA adapters, and models that claim to be adapters."""
    for text in (b"adapter", b"mmproj", b"imatrix", b"vocab", b"dataset"):
        edit = put(b"general.type", STRING, text)
        yield f"a model of general.type {text.decode()}", partial(model_of, applied(base, [edit]))
    target = next((t for t in base.tensors if t.name == b"blk.0.attn_q.weight"), None)
    if target is None:
        return
    entries = [
        Entry(b"general.architecture", STRING, base.architecture()),
        Entry(b"general.type", STRING, b"adapter"),
        Entry(b"adapter.type", STRING, b"lora"),
        Entry(b"adapter.lora.alpha", F32, 8.0),
    ]
    dims_a, dims_b = (target.dims[0], RANK), (RANK, target.dims[1])
    adapter = Gguf(entries, _pair(target.name, dims_a, dims_b))
    adapter.place_tensors()
    model = base.to_bytes()

    def with_adapter(edits: Sequence[Edit]) -> Files:
        return {"model.gguf": model, "lora.gguf": applied(adapter, edits)}

    for what, edits in _of_adapter(adapter, target):
        yield f"adapter: {what}", partial(with_adapter, edits)


def _of_adapter(adapter: Gguf, target: Tensor) -> Iterator[Change]:
    yield "as it should be", []
    for kind, value, item_kind in STAND_INS:
        edit = put(b"adapter.alora.invocation_tokens", kind, value, item_kind)
        yield f"adapter.alora.invocation_tokens = {shown(value)} (type {kind})", [edit]
    yield from scalars(adapter)
    yield from tensors(adapter)
    yield from layout(adapter)
    n_in, n_out = target.dims
    shapes = {
        "rank 0": ((n_in, 0), (0, n_out)),
        "rank 1": ((n_in, 1), (1, n_out)),
        "ranks differ": ((n_in, 4), (8, n_out)),
        "three dimensions": ((n_in, 4, 2), (4, n_out, 2)),
        "a in three dimensions": ((n_in, 4, 2), (4, n_out)),
        "b in three dimensions": ((n_in, 4), (4, n_out, 3)),
        "transposed": ((4, n_in), (n_out, 4)),
    }
    for (what, dims), kind in itertools.product(shapes.items(), (0, 1, 26, 30)):
        pair = _pair(target.name, *dims, kind)
        yield f"{what}, type {kind}", [set_field("tensors", pair), Gguf.place_tensors]
    names = (b"token_embd.weight", b"output_norm.weight", b"blk.0.attn_norm.weight", b"nothing")
    sizes = ((n_in, RANK), (RANK, n_in), (n_in,), (n_in, 1))
    for name, size in itertools.product(names, sizes):
        pair = _pair(name, size, size[::-1])
        edits = [set_field("tensors", pair), Gguf.place_tensors]
        yield f"of {name.decode()}, {size}", edits


def _pair(name: bytes, a: tuple[int, ...], b: tuple[int, ...], kind: int = 0) -> list[Tensor]:
    """Return the two matrices of zeros that an adapter has for a tensor."""
    return [
        Tensor(name + end, dims, kind, 0, bytes(BLOCKS[kind][1] * math.prod(dims)))
        for end, dims in ((b".lora_a", a), (b".lora_b", b))
    ]
