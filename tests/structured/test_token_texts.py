"""Each token has the bytes from the vocabulary, even if the tokenizer changes its input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from token_bytes import TokenBytes

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.structured.token_texts import TokenSpeller, TokenTexts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-spm", "llama-bpe", "gpt-2"])
def test_the_bytes_of_tokens_match_the_model_file(
    library: Library, random_model_path: Callable[..., Path], name: str
) -> None:
    expected = TokenBytes.read(name)
    with Model(random_model_path(name, n_embd=64, n_layers=1), library=library) as model:
        read = model.vocabulary()
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


def test_the_end_tokens_of_the_embedded_model_are_known(tiny_model: Model) -> None:
    read = tiny_model.vocabulary()
    named = {read.texts[token] for token in read.ends}
    assert named == {b"<|endoftext|>", b"<|im_end|>"}
    assert tiny_model.vocabulary() is read


def test_text_is_tokenized_as_a_continuation(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    with Model(random_model_path("llama-spm", n_embd=64, n_layers=1), library=library) as model:
        read = model.vocabulary()
        for text in ('{"name":"', "world", " world", "é日"):
            tokens = read.speller.tokenize(text)
            assert b"".join(read.texts[token] for token in tokens) == text.encode()


def test_a_closed_model_is_not_called() -> None:
    calls: list[str] = []
    speller = TokenSpeller(lambda text: calls.append(text) or [1])  # type: ignore[func-returns-value]
    speller.close()
    with pytest.raises(ElizaError, match="closed"):
        speller.tokenize("a")
    assert calls == []


def test_tokens_without_text_get_a_name_and_become_control_tokens() -> None:
    texts = (b"x", b"", b"</s>", b"<end>")
    read = TokenTexts.of(texts, (2, 3), (2, 3), "<end>", TokenSpeller(lambda text: [0]))
    assert read.texts == (b"x", b"<unused 1>", b"</s>", b"<end>")
    assert read.control == (1, 2, 3)
    assert read.ends == (3, 2)
