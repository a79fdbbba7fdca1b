"""Generate broken model files: copies with one or two changes each."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from fetch_llama_cpp import source_tree
from gguf_file import Gguf, read_gguf

from .companions import adapters, splits
from .layout import flips, layout, tensors, truncations
from .mutation import Files, Mutation
from .values import additions, architectures, arrays, pairs, scalars
from .vocabulary import tokenizers

__all__ = ["Files", "Gguf", "Mutation", "all_mutations", "chosen", "read_gguf"]


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
    found: list[Mutation] = [
        Mutation("unchanged", "as it is", lambda: {"model.gguf": base.copy().to_bytes()})
    ]
    found += scalars(base)
    found += arrays(base)
    found += tokenizers(base, pre_tokenizers)
    found += architectures(base, names)
    found += additions(base, keys)
    found += tensors(base)
    found += layout(base)
    found += splits(base)
    found += adapters(base)
    found += truncations(base)
    found += pairs(base, dice, n_random)
    found += flips(base, dice, n_random)
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
        for group in by_kind.values():
            if group and len(taken) < count:
                taken.append(group.pop())
    return taken
