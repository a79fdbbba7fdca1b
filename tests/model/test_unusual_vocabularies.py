"""Vocabularies with settings that change texts or prompts: end tokens, spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gguf_file import BOOL, U32, Entry
from make_test_models import Shape, read_tokenizer, vocabulary_file, write_model

from eliza_ffi.decisions import Choice
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

Change = Callable[[dict[str, Entry]], None]

TEXTS = [
    *("a ' ;  x , b . c ? d !", " it 's we 're they 've I 'm", "  two spaces  "),
    *("tabs\t and \n\n line breaks ", "ünï © 🙂 日本"),
]


@pytest.fixture
def changed_model(library: Library, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def opened(vocab: str, change: Change, **settings: Any) -> Iterator[Model]:
        tokenizer = read_tokenizer(vocabulary_file(vocab))
        change(tokenizer)
        path = tmp_path / "model.gguf"
        write_model(path, "changed", tokenizer, Shape(n_embd=64, n_layers=2, seed=1))
        with Model(path, library=library, n_threads=1, seed=1, **settings) as model:
            yield model

    return opened


def adding_eos(tokenizer: dict[str, Entry]) -> None:
    name = "tokenizer.ggml.add_eos_token"
    tokenizer[name] = Entry(name.encode(), BOOL, True)


@pytest.mark.parametrize("vocab", ["llama-spm", "gpt-2"])
def test_a_prompt_does_not_end_with_an_end_token(
    vocab: str, changed_model: Callable[..., Any]
) -> None:
    prompt, labels = "The capital is", ["Paris", "Rome", "Oslo"]
    with changed_model(vocab, lambda tokenizer: None) as plain:
        tokens = plain.prompt_tokens(prompt)
        expected = plain.choose(prompt, labels, probabilities=True)
        embedded = plain.embed(prompt)
    with changed_model(vocab, adding_eos) as model:
        assert list(model.prompt_tokens(prompt)) == list(tokens)
        assert model.tokenize(prompt, add_special=True) == list(tokens)
        found = model.choose(prompt, labels, probabilities=True)
        assert found.value == expected.value
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
        # An embedding is that of the whole text, with its end token.
        assert abs(model.embed(prompt) - embedded).max() > 1e-3


@pytest.mark.parametrize("vocab", ["llama-bpe", "gpt-2", "qwen2", "llama-spm", "falcon"])
def test_detokenized_text_is_the_text(vocab: str, changed_model: Callable[..., Any]) -> None:
    with changed_model(vocab, lambda tokenizer: None) as model:
        for text in TEXTS:
            assert model.detokenize(model.tokenize(text)) == text
        question = Choice("Which?", ["a , b", "a ' b", "it 's ?"])
        model.decide("x", question, scoring="full")  # rejects labels that it cannot spell


def with_text_as_eos(token: str) -> Change:
    def change(tokenizer: dict[str, Entry]) -> None:
        tokens = tokenizer["tokenizer.ggml.tokens"].value
        eos = tokens.index(token.encode())
        name = "tokenizer.ggml.eos_token_id"
        tokenizer[name] = Entry(name.encode(), U32, eos)

    return change


@pytest.mark.parametrize("token", ["a", ",", '"', "aa"])
def test_answers_are_filled_if_an_ordinary_token_is_eos(
    token: str, changed_model: Callable[..., Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-c]{2,4}$"},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "count"],
        "additionalProperties": False,
    }
    with changed_model("gpt-2", with_text_as_eos(token)) as model:
        value = model.fill("Fill: ", schema, max_tokens=60).value
        assert set(value) == {"name", "count"}
        spans = [{"kind": "free-string", "key": "x", "rule": "root"}]
        skeleton = {"spans": spans, "grammar": "root ::= [a-c]{2,4}"}
        assert set(model.fill("x: ", skeleton).text) <= set("abc")
