"""Generate broken model files: copies with one or two changes each."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fetch_llama_cpp import source_tree
from gguf_file import Gguf, read_gguf

from .files import Files, adapters, flips, layout, model_of, splits, tensors, truncations
from .metadata import (
    Change,
    Edit,
    additions,
    applied,
    architectures,
    arrays,
    pairs,
    scalars,
    tokenizers,
)

__all__ = ["Files", "Gguf", "Mutation", "all_mutations", "chosen", "read_gguf"]


@dataclass(frozen=True)
class Mutation:
    kind: str
    what: str  # a description, such as ``"llama.block_count = 0"``
    # Returns the files by name. The first is the one to open; ``lora.gguf`` is an adapter to load
    # with it.
    files: Callable[[], Files]


def known_names() -> tuple[list[str], list[str], list[str]]:
    """Return the architectures, metadata keys and pre-tokenizers in llama.cpp's source."""
    tree = source_tree() / "src"
    names = (tree / "llama-arch.cpp").read_text(encoding="utf-8")
    vocab = (tree / "llama-vocab.cpp").read_text(encoding="utf-8")
    return (
        re.findall(r'\{\s*LLM_ARCH_\w+,\s*"([^"]+)"', names),
        re.findall(r'\{\s*LLM_KV_\w+,\s*"([^"]+)"', names),
        re.findall(r'tokenizer_pre == "([^"]+)"', vocab),
    )


def all_mutations(base: Gguf, seed: int, n_random: int = 500) -> list[Mutation]:
    """Return all structured mutations, and `n_random` random ones of each random kind."""
    dice = random.Random(seed)
    names, keys, pre_tokenizers = known_names()
    changes: dict[str, Iterator[Change]] = {
        "unchanged": iter([("as it is", ())]),
        "value": scalars(base),
        "array": arrays(base),
        "tokenizer": tokenizers(base, pre_tokenizers),
        "architecture": architectures(base, names),
        "addition": additions(base, keys),
        "tensor": tensors(base),
        "layout": layout(base),
        "pair": pairs(base, dice, n_random),
    }
    files = {
        "split": splits(base),
        "adapter": adapters(base),
        "truncated": truncations(base),
        "flipped": flips(base, dice, n_random),
    }

    def edited(edits: Sequence[Edit]) -> Files:
        return model_of(applied(base, edits))

    found = [
        Mutation(kind, what, partial(edited, edits))
        for kind, of_kind in changes.items()
        for what, edits in of_kind
    ]
    found += [Mutation(kind, what, make) for kind, each in files.items() for what, make in each]
    return found


def chosen(mutations: Sequence[Mutation], count: int, seed: int) -> list[Mutation]:
    """Return `count` random mutations, taken evenly from all kinds."""
    dice = random.Random(seed)
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        by_kind.setdefault(mutation.kind, []).append(mutation)
    for group in by_kind.values():
        dice.shuffle(group)
    taken: list[Mutation] = []
    while len(taken) < count and any(by_kind.values()):
        taken += [group.pop() for group in by_kind.values() if group]
    return taken[:count]
