"""Mutations of vocabularies."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator

from gguf_file import ARRAY, BOOL, F32, I32, STRING, U8, U32, Gguf

from .edits import Change, put, remove

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
