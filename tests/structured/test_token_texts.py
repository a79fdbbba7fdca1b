"""Every token's text is the vocabulary's own, whatever the tokenizer does to texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.masking.vocabularies import TokenBytes
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.structured import TokenSpeller, TokenTexts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe", "gpt-2"])
def test_texts_are_those_of_the_file(
    library: Library, random_model_path: Callable[..., Path], name: str
) -> None:
    expected = TokenBytes.read(name)
    with Model(random_model_path(name, n_embd=64, n_layers=1), library=library) as model:
        read = model.token_texts()
    control = set(read.control)
    assert control == set(expected.control)
    wrong = [
        (token, text, expected.texts[token])
        for token, text in enumerate(read.texts)
        if token not in control and text != expected.texts[token]
    ]
    assert wrong == []
    assert read.ends[0] == expected.eos
    assert set(read.ends) <= control
    assert read.n_words == (len(expected.texts) + 31) // 32


def test_control_tokens_are_named_and_those_that_end_a_turn_are_known(tiny_model: Model) -> None:
    read = tiny_model.token_texts()
    named = {read.texts[token] for token in read.ends}
    assert named == {b"<|endoftext|>", b"<|im_end|>"}
    assert tiny_model.token_texts() is read


def test_a_text_is_read_as_one_that_goes_on(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    with Model(random_model_path("llama-spm", n_embd=64, n_layers=1), library=library) as model:
        read = model.token_texts()
        for text in ('{"name":"', "world", " world", "é日"):
            tokens = read.speller.tokenize(text)
            assert b"".join(read.texts[token] for token in tokens) == text.encode()


def test_a_closed_model_is_asked_nothing() -> None:
    asked: list[str] = []
    speller = TokenSpeller(lambda text: asked.append(text) or [1])  # type: ignore[func-returns-value]
    speller.close()
    with pytest.raises(ElizaError, match="closed"):
        speller.tokenize("a")
    assert asked == []


def test_tokens_without_a_text_are_named_and_never_chosen() -> None:
    texts = (b"x", b"", b"</s>", b"<end>")
    read = TokenTexts.of(texts, (2, 3), (2, 3), "<end>", TokenSpeller(lambda text: [0]))
    assert read.texts == (b"x", b"<unused 1>", b"</s>", b"<end>")
    assert read.control == (1, 2, 3)
    assert read.ends == (3, 2)
