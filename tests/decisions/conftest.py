"""A model without a chat template, for the tests of prompts and priors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eliza_ffi import Model
from eliza_ffi.library import Library


@pytest.fixture(scope="session")
def plain_model(library: Library, random_model_path: Callable[..., Path]) -> Iterator[Model]:
    """Return a model without a chat template, with random weights in full precision."""
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1, tensor_type="f32")
    with Model(path, library=library, n_ctx=4096, n_threads=1) as model:
        yield model
