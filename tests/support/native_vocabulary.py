"""The library's byte trie and recognizers with any vocabulary, through the test hooks.

The library computes masks only internally, so it exports no function for them.
``build/cpu/libeliza_test_hooks.so``, built by ``make cpu-with-tests``, does.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

DECLARATIONS = """
    const char * eliza_test_last_error();
    void * eliza_test_vocabulary(const char *, const uint64_t * ends, size_t n, int64_t * build_ns);
    void eliza_test_vocabulary_free(void *);
    int64_t eliza_test_vocabulary_nodes(void *);
    void * eliza_test_walk(void * vocabulary, const char * span, size_t len);
    void eliza_test_walk_free(void *);
    int64_t eliza_test_walk_allowed(void *, int32_t * out, size_t cap);
    int eliza_test_walk_allows(void *, int32_t token);
    void eliza_test_walk_accept(void *, int32_t token);
    int eliza_test_walk_may_end(void *);
"""


@functools.cache
def _opened(hooks: Path) -> tuple[Any, Any]:
    """Open the library of test hooks once; return the cffi instance and the library."""
    ffi: Any = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    return ffi, ffi.dlopen(str(hooks))


class NativeVocabulary:
    """The bytes of all tokens as a flattened trie; empty for tokens without text.

    Raises ValueError if the library rejects a token, for example one of more than 1,023 bytes.
    """

    def __init__(self, hooks: Path, texts: Sequence[bytes]) -> None:
        self.ffi, self.lib = _opened(hooks)
        self.n_vocab = len(texts)
        ends = np.cumsum([len(text) for text in texts], dtype=np.uint64)
        buffer = self.ffi.from_buffer("uint64_t[]", ends)
        pointer = self.checked(
            self.lib.eliza_test_vocabulary(
                b"".join(texts), buffer, len(texts), self.ffi.new("int64_t *")
            )
        )
        self.pointer = self.ffi.gc(pointer, self.lib.eliza_test_vocabulary_free)

    @property
    def n_nodes(self) -> int:
        return int(self.lib.eliza_test_vocabulary_nodes(self.pointer))

    def walk(self, span: Mapping[str, Any]) -> NativeWalk:
        """Start a walk with the constraint of a span, in the C header's form."""
        return NativeWalk(self, json.dumps(span).encode())

    def checked(self, result: Any) -> Any:
        """Return the result of a hook; raises ValueError if the hook failed."""
        if result == self.ffi.NULL if isinstance(result, self.ffi.CData) else result == -1:
            raise ValueError(self.ffi.string(self.lib.eliza_test_last_error()).decode())
        return result


class NativeWalk:
    """A constraint with the tokens accepted so far."""

    def __init__(self, vocabulary: NativeVocabulary, span: bytes) -> None:
        self.vocabulary = vocabulary
        lib = vocabulary.lib
        pointer = vocabulary.checked(lib.eliza_test_walk(vocabulary.pointer, span, len(span)))
        self.pointer = vocabulary.ffi.gc(pointer, lib.eliza_test_walk_free)

    def allowed(self) -> list[int]:
        """Return the allowed tokens in ascending order."""
        out = np.empty(self.vocabulary.n_vocab, dtype=np.int32)
        n = self.vocabulary.checked(
            self.vocabulary.lib.eliza_test_walk_allowed(
                self.pointer, self.vocabulary.ffi.from_buffer("int32_t[]", out), len(out)
            )
        )
        return [int(token) for token in out[:n]]

    def allows(self, token: int) -> bool:
        return bool(self.vocabulary.lib.eliza_test_walk_allows(self.pointer, token))

    def accept(self, token: int) -> None:
        self.vocabulary.lib.eliza_test_walk_accept(self.pointer, token)

    def may_end(self) -> bool:
        return bool(self.vocabulary.lib.eliza_test_walk_may_end(self.pointer))
