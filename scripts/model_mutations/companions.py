"""Mutations of models in several files, and of LoRA adapters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from gguf_file import BLOCKS, F32, I32, STRING, U16, Entry, Gguf, Tensor

from .edits import STAND_INS, Change, Edit, applied, put, remove, set_field, shown
from .layout import Broken, Files, layout, model_of, tensors
from .metadata import scalars

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
