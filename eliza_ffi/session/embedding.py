"""Embeddings of texts and the relevance of documents, in several calls of the library.

A call of the library cannot be cancelled, so each call gets few texts. Between two calls, the
caller can cancel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..checks import check_one_of, check_text, check_whole
from ..errors import InvalidArgumentError, NotSupportedError
from .results import RerankResult
from .session import Session

N_TEXTS = 32
"""The maximum number of texts in a call."""

N_CHARACTERS = 2**13
"""The maximum length of all texts of a call. A longer text gets a call of its own."""

LongTexts: TypeAlias = Literal["reject", "average"]

ABOUT_A_TEXT = re.compile(
    r"cannot [^:]*: (the query with )?(?:text|(?:texts|documents)\[(\d+)\]): "
    r"(.*?)(?: \(status -\d+\))?"
)
"""An error of the library about one of the texts."""

SOFTMAX_ARCHITECTURES = ("qwen3", "qwen3vl")
"""Rerankers of these architectures end in a softmax: their relevance is a probability already."""

Floats: TypeAlias = NDArray[np.float32]
Check: TypeAlias = Callable[[], None]


def embeddings_of(
    session: Session,
    texts: Sequence[str],
    pooling: str | None,
    long_texts: LongTexts,
    check: Check,
) -> Floats:
    """Return the embeddings of texts, as rows; `check` is called before each call of the library.

    The other parameters are as for :meth:`~eliza_ffi.model.Model.embed`.
    """
    in_windows = check_one_of("long_texts", long_texts, ("reject", "average")) == "average"
    binding = session.binding
    if session.is_encoder_decoder:  # llama.cpp would end the process
        raise NotSupportedError(
            f"the model {session.path} is an encoder-decoder, which cannot compute embeddings"
        )
    if pooling is None and session.kind == "reranker":
        raise NotSupportedError(
            f"the model {session.path} has no pooling for embeddings: {session.abilities}"
        )

    def embed(part: Sequence[str]) -> Floats:
        return binding.embed_texts(session.ctx, part, pooling, in_windows)

    def embed_one(part: Sequence[str]) -> Floats:  # with elizaOS's own library
        return binding.embed(session.ctx, part[0], pooling or "mean")[None]

    if in_windows or binding.supports("embed_texts"):
        return _in_parts("text", texts, embed, check)
    return _in_parts("text", texts, embed_one, check, n_texts=1)


def reranked(
    session: Session, query: str, documents: Sequence[str], top_n: int | None, check: Check
) -> list[RerankResult]:
    """Return documents by their relevance; parameters as :meth:`~eliza_ffi.model.Model.rerank`."""
    check_text("query", query)
    if top_n is not None:
        top_n = check_whole("top_n", top_n, 1)
    if session.kind != "reranker":
        raise NotSupportedError(f"the model {session.path} is not a reranker: {session.abilities}")
    if not documents:
        return []

    def relevance(part: Sequence[str]) -> Floats:
        return session.binding.rerank(session.ctx, query, part)

    scores = _in_parts("documents", documents, relevance, check, n_extra=len(query))
    has_softmax = session.describe()["model"]["architecture"] in SOFTMAX_ARCHITECTURES
    probabilities = scores if has_softmax else np.exp(-np.logaddexp(0, -scores))
    order = np.argsort(-scores, kind="stable")[:top_n]
    return [RerankResult(int(i), float(scores[i]), float(probabilities[i])) for i in order]


def _in_parts(
    name: str,
    texts: Sequence[str],
    call: Callable[[Sequence[str]], Floats],
    check: Check,
    *,
    n_texts: int = N_TEXTS,
    n_extra: int = 0,
) -> Floats:
    """Call a function with some of the texts at a time, and join the results.

    An error about a text names it with its place in `texts`, as ``name[i]``. `n_extra` is the
    number of characters that are read with each text.
    """
    parts = []
    for begin, part in _parts(texts, n_texts, n_extra):
        check()
        try:
            parts.append(call(part))
        except InvalidArgumentError as error:
            found = ABOUT_A_TEXT.fullmatch(str(error))
            if found is None:
                raise
            before, number, reason = found.groups(default="")
            index = begin + int(number or 0)
            place = f"{name}[{index}]" if len(texts) > 1 else name.removesuffix("s")
            raised = InvalidArgumentError(f"{before}{place}: {reason}")
            raised.argument, raised.index = name, index
            raise raised from error
    return np.concatenate(parts)


def _parts(texts: Sequence[str], n_texts: int, n_extra: int) -> Iterator[tuple[int, Sequence[str]]]:
    """Split texts into the parts of single calls, each with the index of its first text."""
    begin = n_characters = 0
    for i, text in enumerate(texts):
        n_characters += len(text) + n_extra
        if i > begin and (i - begin == n_texts or n_characters > N_CHARACTERS):
            yield begin, texts[begin:i]
            begin, n_characters = i, len(text) + n_extra
    yield begin, texts[begin:]
