"""An encoder reads a text in one pass, whatever it has read before."""

from __future__ import annotations

import pytest
from write_decision_models import cached_decision_model

from eliza_ffi import Model
from eliza_ffi.library.loading import Library

SIZES = (600, 650, 520, 1100, 1279)
"""Numbers of tokens. llama.cpp rounds the room of a context, so that of the first has room for the
second, too. Not all are multiples of the number of texts that may share a pass."""


@pytest.mark.parametrize("way", ["embed", "token_embeddings"])
def test_texts_that_become_longer_have_their_own_embeddings(library: Library, way: str) -> None:
    path = cached_decision_model("laya")

    def read(model: Model, n: int) -> list[float]:
        if way == "embed":
            return list(model.embed("word " * (n // 2)))
        tokens = [7 + i % 11 for i in range(n)]
        found = model.binding.token_embeddings(model.session.ctx, tokens, [0, n - 1])
        return [float(value) for value in found.ravel()]

    with Model(path, library=library, n_threads=1) as one:
        found = [read(one, n) for n in SIZES]
    for n, values in zip(SIZES, found, strict=True):
        with Model(path, library=library, n_threads=1) as alone:
            assert values == pytest.approx(read(alone, n), abs=1e-5), n
