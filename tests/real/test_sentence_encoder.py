"""all-MiniLM-L6-v2 has the embeddings of the reference implementation and of its ONNX file."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_encoder import SentenceEncoder

from bench.answers.datasets import load
from bench.answers.peers import mini_lm
from eliza_ffi.model import Model

pytestmark = pytest.mark.real

COSINE = 0.99999
"""The lowest cosine similarity to the reference implementation. ggml rounds its inputs to f16."""
COSINE_INT8 = 0.999
"""The lowest cosine similarity to the embeddings of the ONNX file, whose weights are int8."""

TICKETS = load("tickets")
TEXTS = [text for text, _ in (*TICKETS.train, *TICKETS.test)]
UNUSUAL = [
    "a",
    "?!",
    "Ünïcödé ÀÉÎ, naïve café; Straße",
    "internationalization of pneumonoultramicroscopicsilicovolcanoconiosis",
    "C++ costs $5 + 10% (i.e. <b>5.50</b>) ~ a^2 | x`y`",
    "don't e-mail: foo_bar@example.com, https://example.com/a?b=c#d",
    "東京は日本の首都です。 中文字",
    "Привет, мир! Ελληνικά",
    "tabs\tand\nlines\r\n  and   spaces\u00a0\u3000",
    "[CLS] [MASK] [SEP] [unused1] ##ing",
    "emoji \U0001f600 and symbols © ™ € →",
    " ".join(["many words"] * 200),
]


def test_tokens_are_those_of_wordpiece(minilm: Model, reference: SentenceEncoder) -> None:
    for text in (*TEXTS, *UNUSUAL):
        assert minilm.tokenize(text, add_special=True) == reference.tokenize(text), text


def test_embeddings_are_those_of_the_reference(minilm: Model, reference: SentenceEncoder) -> None:
    texts = [*TEXTS[:25], *UNUSUAL]
    expected = np.array([reference.embed(text) for text in texts])
    cosines = (minilm.embed(texts) * expected).sum(axis=1)
    assert cosines.min() > COSINE, texts[cosines.argmin()]


def test_embeddings_are_nearly_those_of_the_onnx_file(minilm: Model) -> None:
    """Test the conversion to GGUF: the reference implementation would repeat its errors."""
    pytest.importorskip("onnxruntime", reason="in the extra bench")
    pytest.importorskip("tokenizers", reason="in the extra bench")
    texts = TEXTS[:100]
    cosines = (minilm.embed(texts) * mini_lm(TICKETS, 0)(texts)).sum(axis=1)
    assert cosines.min() > COSINE_INT8, texts[cosines.argmin()]
