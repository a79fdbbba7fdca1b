"""Calls that need a model and no stream: tokenize, embed, score the next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flag, check_one_of, check_text
from ..errors import error_from_status
from .cffi_values import token_array
from .native_calls import ERR_INVALID_ARG, NativeCalls
from .protocol import Tokens, TokenTable

__all__ = ["EotScore", "TextCalls"]

POOLING = {"mean": 1, "cls": 2, "last": 3}

TOKEN_CONTROL, TOKEN_END = 1, 2  # the header's ELIZA_TOKEN_CONTROL and ELIZA_TOKEN_END

EMBEDDING_CAP = 4096
"""The buffer size of the first attempt. If it is too small, the library returns the size needed."""


@dataclass(frozen=True, slots=True)
class EotScore:
    """The probability of a given next token, and the most probable next token.

    Attributes
    ----------
    probability : float
        The probability of the given token, 0 to 1.
    top : int
        The most probable token.
    top_probability : float
        The probability of `top`, 0 to 1.
    """

    probability: float
    top: int
    top_probability: float


class TextCalls(NativeCalls):
    """Calls on a context that take text or tokens."""

    def tokenize(
        self, ctx: Any, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Tokenize a string.

        Parameters
        ----------
        ctx
            The context.
        text
            The string.
        add_special
            Whether to add the tokens that the model requires at the beginning and the end, such as
            BOS.
        parse_special
            Whether to read the name of a special token in `text` as that token.
        """
        self._need("tokenize")
        self._need("free_tokens")
        raw = check_text("text", text).encode("utf-8", "surrogatepass")
        out = self._ffi.new("int **")
        count = self._ffi.new("size_t *")
        self._checked(
            "tokenize",
            self._lib.eliza_inference_tokenize,
            ctx,
            raw,
            len(raw),
            int(check_flag("add_special", add_special)),
            int(check_flag("parse_special", parse_special)),
            out,
            count,
        )
        try:
            return list(self._ffi.unpack(out[0], count[0])) if count[0] else []
        finally:
            self._lib.eliza_inference_free_tokens(out[0])

    def detokenize(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """Return the text of tokens. Bytes that are not UTF-8 are replaced by U+FFFD."""
        raw = self.detokenize_bytes(ctx, tokens, remove_special, unparse_special)
        return raw.decode("utf-8", "replace")

    def detokenize_bytes(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """Return the bytes of tokens. They may end in the middle of a character."""
        self._need("detokenize")
        check_flag("remove_special", remove_special)
        check_flag("unparse_special", unparse_special)
        ids = token_array(tokens)
        pointer = self._ffi.from_buffer("int[]", ids)
        cap = 64 + 16 * len(ids)
        while True:
            text = self._ffi.new("char[]", cap)
            size = self._checked(
                "detokenize",
                self._lib.eliza_inference_detokenize,
                ctx,
                pointer,
                len(ids),
                int(remove_special),
                int(unparse_special),
                text,
                cap,
            )
            if size < cap:
                return bytes(self._ffi.buffer(text, size))
            cap = size + 1

    def vocabulary(self, ctx: Any) -> TokenTable:
        """Return the bytes of all tokens, and which are control tokens or end a generation."""
        self._need("vocabulary")
        doing, function = "read the vocabulary", self._lib.eliza_inference_vocabulary
        null, n_bytes = self._ffi.NULL, self._ffi.new("int64_t *")
        n = self._checked(doing, function, ctx, null, null, 0, null, 0, n_bytes)
        ends, kinds = np.empty(n, np.int64), np.empty(n, np.uint8)
        raw = np.empty(max(1, int(n_bytes[0])), np.uint8)
        from_buffer = self._ffi.from_buffer
        self._checked(
            doing,
            function,
            ctx,
            *(from_buffer("int64_t[]", ends), from_buffer("uint8_t[]", kinds), n),
            *(from_buffer("uint8_t[]", raw), raw.size, n_bytes),
        )
        data, bounds = raw.tobytes(), ends.tolist()
        return TokenTable(
            texts=tuple(data[begin:end] for begin, end in zip([0, *bounds], bounds, strict=False)),
            control=tuple(np.flatnonzero(kinds & TOKEN_CONTROL).tolist()),
            ends=tuple(np.flatnonzero(kinds & TOKEN_END).tolist()),
        )

    def embed(self, ctx: Any, text: str, pooling: str = "mean") -> NDArray[np.float32]:
        """Return the embedding of a string: a unit vector of shape ``[n_embd]``.

        Parameters
        ----------
        ctx
            The context.
        text
            The string.
        pooling
            How to combine the vectors of the tokens: ``"mean"``, ``"cls"`` (take the first) or
            ``"last"`` (take the last).
        """
        self._need("embed")
        self._check_ctx(ctx)
        check_one_of("pooling", pooling, POOLING)
        raw = check_text("text", text).encode("utf-8", "surrogatepass")
        size = self._ffi.new("int *")
        cap = EMBEDDING_CAP
        while True:
            values = np.zeros(cap, dtype=np.float32)
            error = self._ffi.new("char **")
            self._dialect.check(ctx, "embed the text")
            status = self._lib.eliza_inference_embed(
                ctx,
                raw,
                len(raw),
                POOLING[pooling],
                self._ffi.from_buffer("float[]", values),
                cap,
                size,
                error,
            )
            said = self._take(error)
            if status == ERR_INVALID_ARG and size[0] > cap:
                cap = size[0]
                continue
            if status < 0:
                raise error_from_status(status, said, "embed the text")
            embedding: NDArray[np.float32] = values[: int(size[0])].copy()
            return embedding

    def eot_score(self, ctx: Any, tokens: Tokens, target: int) -> EotScore:
        """Return the probability that token `target`, such as an end of turn, comes next."""
        self._need("llm_eot_score")
        ids = token_array(tokens)
        wanted = int(token_array([target])[0])
        probability = self._ffi.new("float *")
        top = self._ffi.new("int32_t *")
        top_probability = self._ffi.new("float *")
        self._checked(
            f"score token {wanted} after {len(ids)} tokens",
            self._lib.eliza_inference_llm_eot_score,
            ctx,
            self._ffi.from_buffer("int32_t[]", ids),
            len(ids),
            wanted,
            probability,
            top,
            top_probability,
        )
        return EotScore(probability[0], top[0], top_probability[0])
