"""With thinking switched off, the token ``<think>`` is never sampled."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGUFReader, TokenType

from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.sampling import Sampling

THINK = b"<think>"


@pytest.fixture
def thinking_file(tmp_path: Path, tiny_model: Model) -> tuple[Path, int]:
    """Return the embedded model with a token of seven bytes renamed to ``<think>``, and its id."""
    path = tmp_path / "thinking.gguf"
    shutil.copy(tiny_model.path, path)
    reader = GGUFReader(path, "r+")
    texts = reader.fields["tokenizer.ggml.tokens"]
    token = next(i for i, part in enumerate(texts.data) if len(texts.parts[part]) == len(THINK))
    texts.parts[texts.data[token]][:] = list(THINK)
    types = reader.fields["tokenizer.ggml.token_type"]
    types.parts[types.data[token]][:] = int(TokenType.USER_DEFINED)
    return path, token


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_think_tokens_are_never_sampled_if_thinking_is_off(
    thinking_file: tuple[Path, int], library: Library, temperature: float
) -> None:
    path, think = thinking_file
    eager = Sampling(temperature=temperature, seed=1, logit_bias=((think, 50.0),))
    quiet = replace(eager, disable_thinking=True)
    for off in (False, True):
        options = {"disable_thinking": "1"} if off else {}
        with Model(path, library=library, options=options) as model:
            assert list(model.tokenize(THINK.decode(), parse_special=True)) == [think]
            text = model.generate("Say hello. ", max_tokens=12, sampling=eager).text
            assert (THINK.decode() in text) is not off
            text = model.generate("Say hello. ", max_tokens=12, sampling=quiet).text
            assert THINK.decode() not in text
