"""Mutations of tensors, of the file's header and counts, truncations, and changed bytes."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from gguf_file import ARRAY, BLOCKS, I32, STRING, U16, U32, U64, Gguf

from .mutation import FLOATS, STAND_INS, Files, Mutation, edited, put, set_field, shown

NAMES = (
    b"",
    b"x",
    b"n" * 63,
    b"n" * 64,
    b"n" * 65,
    b"a\0b",
    b"\xff",
    b"blk.0.ffn_gate_inp.weight",
    b"blk.99.attn_q.weight",
    b"rope_freqs.weight",
    b"output.bias",
)


def tensors(base: Gguf) -> Iterator[Mutation]:
    """Yield files whose tensors have other names, sizes, types and offsets, or are missing."""

    def change(i: int, what: str, place: bool = False, **parts: Any) -> Mutation:
        def edit(gguf: Gguf) -> None:
            gguf.tensors[i] = replace(gguf.tensors[i], **parts)
            if place:
                gguf.place_tensors()

        return edited(base, "tensor", f"{base.tensors[i].name.decode()}: {what}", edit)

    of_a_layer = [i for i, t in enumerate(base.tensors) if not t.name.startswith(b"blk.")]
    of_a_layer += [i for i, t in enumerate(base.tensors) if t.name.startswith(b"blk.0.")]
    for i in of_a_layer:
        tensor = base.tensors[i]

        def drop(gguf: Gguf, i: int = i) -> None:
            del gguf.tensors[i]
            gguf.place_tensors()

        def again(gguf: Gguf, i: int = i) -> None:
            gguf.tensors.append(gguf.tensors[i])
            gguf.place_tensors()

        yield edited(base, "tensor", f"without {tensor.name.decode()}", drop)
        yield edited(base, "tensor", f"{tensor.name.decode()} twice", again)
        beside = (tensor.name[:-7] + b".bias", tensor.name[:-7] + b".scale")
        for name in (*NAMES, *beside):
            yield change(i, f"named {shown(name)}", name=name)
        for size in (0, 1, 31, 32, 33, 2**31, 2**32, 2**62, 2**63, 2**64 - 1):
            for d in range(len(tensor.dims)):
                dims = (*tensor.dims[:d], size, *tensor.dims[d + 1 :])
                yield change(i, f"dims {dims}", dims=dims)
        for dims in (
            (),
            tensor.dims[::-1],
            (*tensor.dims, 1),
            (*tensor.dims, 2),
            (*tensor.dims, 0),
            (*tensor.dims, 1, 1, 1),
            (math.prod(tensor.dims),),
            (2**33, 2**33),
            (2**21, 2**21, 2**21, 2),
        ):
            yield change(i, f"dims {dims}", dims=dims)
        for kind in range(45):
            yield change(i, f"type {kind}", kind=kind)
            if (
                kind in BLOCKS and kind != tensor.kind
            ):  # with as many bytes as a tensor of the type needs
                n_items, n_bytes = BLOCKS[kind]
                data = bytes(math.prod(tensor.dims) // n_items * n_bytes)
                yield change(i, f"of type {kind}, zeros", place=True, kind=kind, data=data)
        for kind in (2**31, 2**32 - 1):
            yield change(i, f"type {kind}", kind=kind)
        for offset in (1, 31, 32, 2**31, 2**40, 2**63, 2**64 - 32, 2**64 - 1):
            yield change(i, f"offset {offset}", offset=offset)
        if len(tensor.data) > 64 and tensor.kind == 0:
            for real in FLOATS:
                data = struct.pack("<f", real) * (len(tensor.data) // 4)
                yield change(i, f"all {real}", data=data)
        yield change(i, "all ones", data=b"\xff" * len(tensor.data))


def layout(base: Gguf) -> Iterator[Mutation]:
    """Yield files with another magic, version, counts, alignment or split keys."""

    def set_to(name: str, value: Any) -> Mutation:
        return edited(base, "layout", f"{name} = {shown(value)}", set_field(name, value))

    for magic in (b"GGUF"[::-1], b"GGML", b"\0\0\0\0", b"gguf"):
        yield set_to("magic", magic)
    for version in (0, 1, 2, 4, 255, 3 << 24, 2**32 - 1):
        yield set_to("version", version)
    for name, count in (("n_entries", len(base.entries)), ("n_tensors", len(base.tensors))):
        for wrong in (0, 1, count - 1, count + 1, 10**6, 2**31, 2**32, 2**62, 2**63, 2**64 - 1):
            yield set_to(name, wrong)
    for alignment in (0, 1, 2, 4, 8, 16, 31, 33, 64, 4096, 2**16, 2**31, 2**32 - 1):
        edit = put(b"general.alignment", U32, alignment)
        yield edited(base, "layout", f"general.alignment = {alignment}", edit)
        yield edited(
            base,
            "layout",
            f"general.alignment = {alignment}, tensors placed",
            edit,
            Gguf.place_tensors,
        )
    for kind, value in ((U64, 32), (STRING, b"32"), (I32, 32)):
        edit = put(b"general.alignment", kind, value)
        yield edited(base, "layout", f"general.alignment of type {kind}", edit)
    for count in (0, 1, 2, 3, 65535):
        edits = [put(b"split.count", U16, count)]
        yield edited(base, "split", f"split.count = {count}", *edits)
        for number in (0, 1, 65535):
            more = [*edits, put(b"split.no", U16, number)]
            yield edited(base, "split", f"split {number} of {count}", *more)
            more.append(put(b"split.tensors.count", I32, len(base.tensors)))
            yield edited(base, "split", f"split {number} of {count}, tensors counted", *more)
    for kind, value, item_kind in STAND_INS:
        for key in (b"split.count", b"split.no", b"split.tensors.count"):
            edits = [
                put(b"split.count", U16, 2),
                put(b"split.no", U16, 0),
                put(b"split.tensors.count", I32, len(base.tensors)),
                put(key, kind, value, item_kind),
            ]
            yield edited(base, "split", f"{key.decode()} of type {kind}", *edits)


def truncations(base: Gguf) -> Iterator[Mutation]:
    """Yield files cut near the edges of their parts, and one with trailing bytes."""
    gguf = base.copy()
    data = gguf.to_bytes()
    cuts = sorted({cut + d for cut in gguf.edges for d in (0, 1, 8)} | set(range(0, 64, 3)))
    cuts += [len(data) - 1, len(data) - 32, len(data) // 2]
    for cut in cuts:
        yield Mutation("truncated", f"after {cut} bytes", partial(_model, data[:cut]))
    yield Mutation("truncated", "1 MiB more", partial(_model, data + bytes(1 << 20)))


def _model(data: bytes) -> Files:
    return {"model.gguf": data}


def flips(base: Gguf, dice: random.Random, count: int) -> Iterator[Mutation]:
    """Yield files with one to eight changed bytes in the header."""
    gguf = base.copy()
    data = gguf.to_bytes()
    head_end = next(edge for edge in reversed(gguf.edges) if edge)
    # Most of the header is the vocabulary, so half of the changes are made elsewhere in it.
    texts = [i for i, entry in enumerate(base.entries) if entry.kind == ARRAY]
    rest = [at for i, at in enumerate(gguf.edges[2:]) if i not in texts and at < head_end]
    for number in range(count):
        seed = dice.getrandbits(32)

        def files(seed: int = seed) -> Files:
            own = random.Random(seed)
            broken = bytearray(data)
            for _ in range(own.choice((1, 1, 2, 4, 8))):
                if own.random() < 0.5:
                    at = min(own.choice(rest) + own.randrange(64), head_end - 1)
                else:
                    at = own.randrange(head_end)
                broken[at] = own.choice(
                    (own.randrange(256), broken[at] ^ 1 << own.randrange(8), 0, 255)
                )
            return {"model.gguf": bytes(broken)}

        yield Mutation("flipped", f"bytes, {number} (seed {seed})", files)
