"""Embeddings, and the probability that a turn ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
from sampling_strategies import softmax64
from tiny_files import write_bert

from bench.choosing.other_libraries import Logits
from eliza_ffi.errors import ContextFullError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

POOLINGS = ("mean", "cls", "last")
END = "<|im_end|>"


# ---- Embeddings --------------------------------------------------------------------------------


def test_control_tokens_in_embedded_text_are_plain_text(tiny_model: Model) -> None:
    n_spelled = len(tiny_model.tokenize(END))
    assert n_spelled > 1 == len(tiny_model.tokenize(END, parse_special=True))
    spelled, other = tiny_model.embed(f"a{END}", "last"), tiny_model.embed("a", "last")
    assert spelled @ other < 0.999


def test_many_strings_have_the_embeddings_of_single_ones(tiny_model: Model) -> None:
    texts = [f"text number {i} " * (1 + i % 50) for i in range(70)]
    rows = tiny_model.embed(iter(texts))
    assert (rows.shape, rows.dtype) == ((70, 128), np.float32)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_array_equal(row, tiny_model.embed(text))
    with pytest.raises(InvalidArgumentError, match="text must be a string or a non-empty list"):
        tiny_model.embed([])


def test_the_pooling_of_the_file_is_the_default(
    tiny_model: Model, tmp_path: Path, library: Library
) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    np.testing.assert_array_equal(tiny_model.embed(text), tiny_model.embed(text, "mean"))
    for pooling in (gguf.PoolingType.MEAN, gguf.PoolingType.CLS, gguf.PoolingType.LAST):
        write_bert(tmp_path / "model.gguf", pooling)
        with Model(tmp_path / "model.gguf", library=library) as model:
            rows = {name: model.embed(text, name) for name in POOLINGS}
            own = model.embed(text)
            np.testing.assert_allclose(own, rows.pop(pooling.name.lower()), atol=1e-6)
            assert all(not np.allclose(own, row, atol=1e-3) for row in rows.values())


@pytest.mark.parametrize("index", [0, 5, 69])
def test_a_string_that_is_too_long_is_named_by_its_index(tiny_model: Model, index: int) -> None:
    texts = ["a text"] * 70
    texts[index] = "many words " * 3000
    reason = rf"^text\[{index}\]: expected at most 2048 tokens, got 6003$"
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        tiny_model.embed(texts)
    assert (caught.value.argument, caught.value.index) == ("text", index)
    with pytest.raises(InvalidArgumentError, match="^text: expected at most 2048 tokens"):
        tiny_model.embed(texts[index])


def test_long_strings_can_be_read_in_parts(tmp_path: Path, library: Library) -> None:
    """The windows have 510 tokens and overlap by a quarter; [CLS] and [SEP] surround each."""
    write_bert(tmp_path / "model.gguf")
    words = ["house", "cat", "dog", "ship", "bill", "truck", "pay"]
    with Model(tmp_path / "model.gguf", library=library) as model:
        text = " ".join(words[i % 7 if i < 500 else 0] for i in range(700))
        assert len(model.tokenize(text)) == 700
        windows = [text.split()[:510], text.split()[383:]]
        rows = [model.embed(" ".join(each)) for each in windows]
        mean = sum((len(each) + 2) * row for each, row in zip(windows, rows, strict=True))
        expected = mean / np.linalg.norm(mean)
        found = model.embed(["a bill", text], long_texts="average")
        np.testing.assert_allclose(found[1], expected, atol=1e-5)
        np.testing.assert_allclose(found[0], model.embed("a bill"), atol=1e-5)
        with pytest.raises(InvalidArgumentError, match="long_texts must be one of reject, average"):
            model.embed(text, long_texts="cut")  # type: ignore[arg-type]


def test_elizaos_library_embeds_strings_one_by_one(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a text", "another text"]
    expected = tiny_model.embed(texts)
    supports = tiny_model.binding.supports
    monkeypatch.setattr(
        tiny_model.binding, "supports", lambda name: name != "embed_texts" and supports(name)
    )
    monkeypatch.delattr(type(tiny_model.binding), "embed_texts")
    np.testing.assert_array_equal(tiny_model.embed(texts), expected)
    with pytest.raises(InvalidArgumentError, match=r"^text\[1\]: expected at most 2048 tokens"):
        tiny_model.embed(["a", "many words " * 3000])


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
    tiny_model.generate("x", 1)  # the cache of streams is used, here with its default types
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


def test_invalid_end_of_turn_requests_are_rejected(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="end must be the text of a single token, got"):
        tiny_model.end_of_turn("text", "not one token")
    with pytest.raises(InvalidArgumentError, match="after 0 tokens"):
        tiny_model.end_of_turn([], 3)
    with pytest.raises(InvalidArgumentError, match="outside the vocabulary"):
        tiny_model.end_of_turn([5], 2048)
    with pytest.raises(ContextFullError):
        tiny_model.end_of_turn("many words " * 3000, END)
