"""Mutations of models in several files, and of LoRA adapters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gguf_file import BLOCKS, F32, I32, STRING, U16, Entry, Gguf, Tensor

from .layout import layout, tensors
from .mutation import STAND_INS, Edit, Files, Mutation, edited, put, remove, set_field, shown
from .values import scalars


def splits(base: Gguf) -> Iterator[Mutation]:
    """Yield models in two files, whose second file does not match the first."""
    half = len(base.tensors) // 2

    def two(what: str, edit: Edit, keys: Sequence[Entry] = ()) -> Mutation:
        def files() -> Files:
            first, second = base.copy(), Gguf([], list(base.tensors[half:]))
            first.tensors = first.tensors[:half]
            for number, part in enumerate((first, second)):
                part.put(Entry(b"split.count", U16, 2))
                part.put(Entry(b"split.no", U16, number))
                part.put(Entry(b"split.tensors.count", I32, len(base.tensors)))
                part.place_tensors()
            edit(second)
            for key in keys:
                second.put(key)
            names = ("part-00001-of-00002.gguf", "part-00002-of-00002.gguf")
            return dict(zip(names, (first.to_bytes(), second.to_bytes()), strict=True))

        return Mutation("split", what, files)

    yield two("as it should be", lambda gguf: None)
    for kind, value, item_kind in (*STAND_INS, (U16, 0, None), (U16, 7, None)):
        key = Entry(b"split.no", kind, value, item_kind)
        yield two(f"second split.no = {shown(value)} (type {kind})", lambda gguf: None, [key])
    yield two("second without split.no", remove(b"split.no"))
    yield two("second without tensors", lambda gguf: gguf.tensors.clear())

    def twice(gguf: Gguf) -> None:
        gguf.tensors.append(base.tensors[0])
        gguf.place_tensors()

    def beyond(gguf: Gguf) -> None:
        gguf.tensors[-1] = replace(gguf.tensors[-1], dims=(2**40, 2**20))

    yield two("a tensor in both", twice)
    yield two("second with a tensor beyond its end", beyond)
    for count in (0, 2**32, 2**63):
        yield two(f"second with {count} tensors", set_field("n_tensors", count))
        yield two(f"second with {count} keys", set_field("n_entries", count))


def adapters(base: Gguf) -> Iterator[Mutation]:
    """Yield broken LoRA adapters, and models that claim to be adapters."""
    for text in (b"adapter", b"mmproj", b"imatrix", b"vocab", b"dataset"):
        edit = put(b"general.type", STRING, text)
        yield edited(base, "adapter", f"a model of general.type {text.decode()}", edit)
    target = next((t for t in base.tensors if t.name == b"blk.0.attn_q.weight"), None)
    if target is None:
        return
    rank = 4
    n_in, n_out = target.dims

    def pair(kind: int = 0) -> list[Tensor]:
        size = BLOCKS[kind][1]
        return [
            Tensor(target.name + b".lora_a", (n_in, rank), kind, 0, bytes(size * n_in * rank)),
            Tensor(target.name + b".lora_b", (rank, n_out), kind, 0, bytes(size * n_out * rank)),
        ]

    adapter = Gguf(
        [
            Entry(b"general.architecture", STRING, base.architecture()),
            Entry(b"general.type", STRING, b"adapter"),
            Entry(b"adapter.type", STRING, b"lora"),
            Entry(b"adapter.lora.alpha", F32, 8.0),
        ],
        pair(),
    )
    adapter.place_tensors()
    model = base.to_bytes()

    def lora(mutation: Mutation) -> Mutation:
        return replace(
            mutation,
            kind="adapter",
            files=lambda: {"model.gguf": model, "lora.gguf": mutation.files()["model.gguf"]},
        )

    yield lora(edited(adapter, "", "adapter as it should be"))
    for kind, value, item_kind in STAND_INS:
        key = b"adapter.alora.invocation_tokens"
        edit = put(key, kind, value, item_kind)
        yield lora(edited(adapter, "", f"{key.decode()} = {shown(value)}", edit))
    for mutation in (*scalars(adapter), *tensors(adapter), *layout(adapter)):
        yield lora(replace(mutation, what=f"adapter: {mutation.what}"))
    for what, dims_a, dims_b in (
        ("rank 0", (n_in, 0), (0, n_out)),
        ("rank 1", (n_in, 1), (1, n_out)),
        ("ranks differ", (n_in, 4), (8, n_out)),
        ("three dimensions", (n_in, 4, 2), (4, n_out, 2)),
        ("a in three dimensions", (n_in, 4, 2), (4, n_out)),
        ("b in three dimensions", (n_in, 4), (4, n_out, 3)),
        ("transposed", (4, n_in), (n_out, 4)),
    ):
        for kind in (0, 1, 26, 30):
            names = [tensor.name for tensor in pair()]
            new = [
                Tensor(name, dims, kind, 0, bytes(BLOCKS[kind][1] * math.prod(dims)))
                for name, dims in zip(names, (dims_a, dims_b), strict=True)
            ]

            def swap(gguf: Gguf, new: list[Tensor] = new) -> None:
                gguf.tensors = list(new)
                gguf.place_tensors()

            yield lora(edited(adapter, "", f"adapter: {what}, type {kind}", swap))
    for name in (
        b"token_embd.weight",
        b"output_norm.weight",
        b"blk.0.attn_norm.weight",
        b"nothing",
    ):
        for dims in ((n_in, rank), (rank, n_in), (n_in,), (n_in, 1)):

            def retarget(gguf: Gguf, name: bytes = name, dims: tuple[int, ...] = dims) -> None:
                data = bytes(4 * math.prod(dims))
                gguf.tensors = [
                    Tensor(name + b".lora_a", dims, 0, 0, data),
                    Tensor(name + b".lora_b", dims[::-1], 0, 0, data),
                ]
                gguf.place_tensors()

            yield lora(edited(adapter, "", f"adapter of {name.decode()}, {dims}", retarget))
