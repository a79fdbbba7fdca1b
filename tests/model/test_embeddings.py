"""Embeddings, and the probability that a turn ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sampling_strategies import softmax64

from bench.choosing.other_libraries import Logits
from eliza_ffi.errors import ContextFullError, InvalidArgumentError
from eliza_ffi.model import Model

POOLINGS = ("mean", "cls", "last")
END = "<|im_end|>"


# ---- Embeddings --------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_embedding_has_length_1_and_ignores_earlier_requests(
    tiny_model: Model, pooling: str
) -> None:
    first = tiny_model.embed("A cat sat on the mat.", pooling)
    assert (first.shape, first.dtype) == ((128,), np.float32)
    assert np.linalg.norm(first) == pytest.approx(1.0, abs=1e-5)
    tiny_model.embed("Quarterly revenue, in Grüße and 日本.", pooling)
    tiny_model.generate("Something else.", 3)
    np.testing.assert_array_equal(tiny_model.embed("A cat sat on the mat.", pooling), first)


def test_pooling_selects_the_tokens(tiny_model: Model) -> None:
    assert tiny_model.describe()["model"]["add_bos"]
    # An empty string has only the BOS token.
    alone = {pooling: tiny_model.embed("", pooling) for pooling in POOLINGS}
    np.testing.assert_allclose(alone["mean"], alone["cls"], atol=1e-6)
    np.testing.assert_allclose(alone["last"], alone["cls"], atol=1e-6)
    one, other = "A cat sat on the mat.", "Quarterly revenue"
    for text in (one, other):
        np.testing.assert_allclose(tiny_model.embed(text, "cls"), alone["cls"], atol=1e-3)
    for pooling in ("mean", "last"):
        assert tiny_model.embed(one, pooling) @ tiny_model.embed(other, pooling) < 0.99


def test_control_tokens_in_embedded_text_are_plain_text(tiny_model: Model) -> None:
    n_spelled = len(tiny_model.tokenize(END))
    assert n_spelled > 1 == len(tiny_model.tokenize(END, parse_special=True))
    spelled, other = tiny_model.embed(f"a{END}", "last"), tiny_model.embed("a", "last")
    assert spelled @ other < 0.999


def test_invalid_embedding_requests_are_rejected(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="pooling must be one of mean, cls, last, got"):
        tiny_model.embed("text", "max")
    with pytest.raises(InvalidArgumentError, match="expected at most 2048 tokens, got 6003"):
        tiny_model.embed("many words " * 3000)
    assert tiny_model.embed("text").shape == (128,), "the model stays usable"


def test_concurrent_threads_compute_the_same_embeddings(tiny_model: Model) -> None:
    texts = [f"text number {i} " * (1 + i) for i in range(16)]
    with ThreadPoolExecutor(4) as threads:
        for text, found in zip(texts, threads.map(tiny_model.embed, texts), strict=True):
            np.testing.assert_array_equal(found, tiny_model.embed(text))


# ---- The end of a turn -------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["how are you today", "how are", "I would like to know"])
def test_end_of_turn_equals_the_softmax_of_the_logits(
    tiny_model: Model, hooks_path: Path, said: str
) -> None:
    prompt = f"<|im_start|>user\n{said}"
    tokens = tiny_model.tokenize(prompt, add_special=True, parse_special=True)
    (end,) = tiny_model.tokenize(END, parse_special=True)
    shares = softmax64(Logits(hooks_path).after(tiny_model.path, tokens, 2048))
    for asked in (prompt, tokens, np.array(tokens)):
        score = tiny_model.end_of_turn(asked, END)
        assert score.probability == pytest.approx(shares[end], rel=0.02)
        assert score.top == int(np.argmax(shares))
        assert score.top_probability == pytest.approx(shares.max(), rel=0.02)
    assert tiny_model.end_of_turn(tokens, end) == score
    assert tiny_model.end_of_turn(tokens, score.top).probability == score.top_probability


def test_a_finished_sentence_is_more_likely_to_end_a_turn(tiny_model: Model) -> None:
    ended, open_ = (
        tiny_model.end_of_turn(f"<|im_start|>user\n{said}", END).probability
        for said in ("Stop talking to me.", "Stop talking to")
    )
    assert ended > 2 * open_


def test_invalid_end_of_turn_requests_are_rejected(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="end must be the text of a single token, got"):
        tiny_model.end_of_turn("text", "not one token")
    with pytest.raises(InvalidArgumentError, match="after 0 tokens"):
        tiny_model.end_of_turn([], 3)
    with pytest.raises(InvalidArgumentError, match="outside the vocabulary"):
        tiny_model.end_of_turn([5], 2048)
    with pytest.raises(ContextFullError):
        tiny_model.end_of_turn("many words " * 3000, END)
