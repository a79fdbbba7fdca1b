"""Mutations of vocabularies."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from gguf_file import ARRAY, BOOL, F32, I32, STRING, U8, U32, Gguf

from .mutation import Mutation, edited, put, remove

TOKENIZERS = (
    *(b"no_vocab", b"none", b"llama", b"bert", b"gpt2", b"t5", b"rwkv", b"plamo2", b"plamo3"),
    *(b"gemma4", b"hybriddna", b"whitespace", b"test", b"replit"),
)
SPECIAL = (
    *("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "cls"),
    *("prefix", "suffix", "middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad"),
)


def tokenizers(base: Gguf, pre_tokenizers: Iterable[str]) -> Iterator[Mutation]:
    """Yield vocabularies of every tokenizer, with and without the data that it needs."""
    tokens = base.get(b"tokenizer.ggml.tokens")
    if not tokens:
        return
    scores = put(b"tokenizer.ggml.scores", ARRAY, [-float(i) for i in range(len(tokens))], F32)
    no_scores = remove(b"tokenizer.ggml.scores")
    no_merges = remove(b"tokenizer.ggml.merges")
    charsmap = b"tokenizer.ggml.precompiled_charsmap"
    plain: list[bytes] = [f"t{i}".encode() for i in range(len(tokens))]
    with_bytes = [f"<0x{i:02X}>".encode() for i in range(256)] + plain[256:]
    unusual = {
        "plain": plain,
        "bytes": with_bytes[: len(tokens)],
        "bert": [b"[UNK]", b"[CLS]", b"[SEP]", b"[PAD]", b"[MASK]", *plain[5:]],
        "escapes": [f"\\x{i % 256:02x}".encode() + b"a" * (i // 256) for i in range(len(tokens))],
        "broken escapes": [b"\\x", b"\\", b"\\xz", b"b'\\", *plain[4:]],
    }
    for name in TOKENIZERS:
        model = put(b"tokenizer.ggml.model", STRING, name)
        label = name.decode()
        yield edited(base, "tokenizer", label, model)
        yield edited(base, "tokenizer", f"{label}, scores", model, scores)
        yield edited(base, "tokenizer", f"{label}, no merges", model, no_merges)
        yield edited(
            base, "tokenizer", f"{label}, no scores, no merges", model, no_scores, no_merges
        )
        for what, texts in unusual.items():
            texts_edit = put(b"tokenizer.ggml.tokens", ARRAY, texts, STRING)
            yield edited(base, "tokenizer", f"{label}, {what}", model, scores, texts_edit)
            for kind in (0, 1, 2, 3, 4, 5, 6):
                kinds = put(b"tokenizer.ggml.token_type", ARRAY, [kind] * len(texts), I32)
                what_kind = f"{label}, {what}, all of type {kind}"
                yield edited(base, "tokenizer", what_kind, model, scores, texts_edit, kinds)
        for what, blob in {
            "empty": b"",
            "short": b"\1\0",
            "no blob": struct.pack("<I", 0) + b"\0",
            "size beyond": struct.pack("<I", 2**32 - 1) + b"\0" * 64,
            "size wraps": struct.pack("<I", 2**32 - 4) + b"\0" * 64,
            "zeros": struct.pack("<I", 1024) + b"\0" * 1100,
            "ones": struct.pack("<I", 1024) + b"\xff" * 1100,
            "leaves": struct.pack("<I", 1024) + struct.pack("<256I", *[0x80000000 | 2**30] * 256),
            "leaves to the end": struct.pack("<I", 1024)
            + struct.pack("<256I", *([0x100 | 65] * 256))
            + b"xy",
            "odd size": struct.pack("<I", 1023) + b"\x41" * 1100,
        }.items():
            if name in (b"t5", b"llama"):
                edit = put(charsmap, ARRAY, list(blob), U8)
                yield edited(base, "tokenizer", f"{label}, charsmap {what}", model, scores, edit)
    for key in SPECIAL:
        full = f"tokenizer.ggml.{key}_token_id".encode()
        for number in (0, len(tokens) - 1, len(tokens), 2**31 - 1, 2**31, 2**32 - 1):
            yield edited(base, "special", f"{full.decode()} = {number}", put(full, U32, number))
        for number in (-1, -(2**31)):
            yield edited(base, "special", f"{full.decode()} = {number}", put(full, I32, number))
    for bos, eos in ((0, 0), (0, 1), (1, 0), (1, 1)):
        flags = [
            put(b"tokenizer.ggml.add_bos_token", BOOL, bos),
            put(b"tokenizer.ggml.add_eos_token", BOOL, eos),
            put(b"tokenizer.ggml.add_sep_token", BOOL, bos),
        ]
        without = [
            remove(f"tokenizer.ggml.{key}_token_id".encode()) for key in ("bos", "eos", "eot")
        ]
        for name in TOKENIZERS:
            model = put(b"tokenizer.ggml.model", STRING, name)
            what = f"{name.decode()}, add bos {bos}, eos {eos}, none given"
            yield edited(base, "special", what, model, scores, *flags, *without)
    for pre in pre_tokenizers:
        yield edited(base, "pre", pre, put(b"tokenizer.ggml.pre", STRING, pre.encode()))
    for model_name in ("phi-3", "Phi3 mini", "modern-bert", "jina-v2-de"):
        edit = put(b"general.name", STRING, model_name.encode())
        yield edited(base, "pre", f"general.name {model_name}", edit)
