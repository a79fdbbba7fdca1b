"""Compare native samplers that use the strings of tokens, infill and DRY, with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_chain import (
    N_VOCAB,
    NativeChain,
    assert_agree,
    assert_same,
    distinct,
    reference_of,
    with_fixtures,
)
from numpy_sampler import InfillVocabulary, breaker_sequences
from token_bytes import TokenBytes

from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.sampling import Sampling

END = 2  # </s>, the only token of the vocabulary that ends a generation


@pytest.fixture(scope="module")
def vocabulary_model(library: Library, random_model_path: Callable[..., Path]) -> Iterator[Model]:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def infill(vocabulary_model: Model) -> InfillVocabulary:
    pieces = list(TokenBytes.from_file(Path(vocabulary_model.path)).texts)
    return InfillVocabulary(pieces, frozenset((END,)), END)


@pytest.mark.slow
@given(logits=distinct, seed=st.integers(0, 2**32 - 2), end=st.booleans(), data=st.data())
@with_fixtures
def test_native_infill_matches_its_reference(
    native: NativeChain,
    infill: InfillVocabulary,
    logits: list[float],
    seed: int,
    end: bool,
    data: st.DataObject,
) -> None:
    # Many of these tokens begin with another of them: "h", "he", "hel", ...
    alike = [i for i, piece in enumerate(infill.pieces) if piece.startswith(b"he") or piece == b"h"]
    some = st.lists(st.sampled_from(alike), min_size=1, max_size=12, unique=True)
    ids = [*data.draw(some), *([END] if end else [])][: len(logits)]
    # Few and likely tokens: if each is below a fifth, only the end token remains.
    few = [logit / data.draw(st.sampled_from([1, 4, 20])) for logit in logits[: len(ids)]]
    # Of two equally likely tokens, either one may be merged into the other.
    is_a_tie = bool(np.any(np.diff(np.sort(few)) < 1e-5))
    params = Sampling(temperature=1.0, samplers="infill", seed=seed)
    if not is_a_tie:
        assert_agree(native, params, few, ids, infill=infill)


BREAKERS = ("\n", ":", "the", "ab")


@pytest.fixture(scope="module")
def breakers(vocabulary_model: Model) -> list[tuple[int, ...]]:
    pieces = [
        vocabulary_model.binding.detokenize_bytes(
            vocabulary_model.session.ctx, [token], unparse_special=True
        )
        for token in range(N_VOCAB)
    ]
    return breaker_sequences(
        BREAKERS, pieces, lambda rest: vocabulary_model.tokenize(rest.decode())
    )


@pytest.mark.slow
@given(logits=distinct, data=st.data())
@with_fixtures
def test_native_dry_matches_its_reference_at_breakers(
    native: NativeChain,
    vocabulary_model: Model,
    breakers: list[tuple[int, ...]],
    logits: list[float],
    data: st.DataObject,
) -> None:
    words = st.sampled_from(
        ["a b c", " the", " a b", "c", ":", "\n", " lathe", " cab", "ab", " xa"]
    )
    text = "".join(data.draw(st.lists(words, min_size=3, max_size=14)))
    accepted = vocabulary_model.tokenize(text)
    ids = list(dict.fromkeys([*accepted, *range(300, 320)]))[: len(logits)]
    params = Sampling(
        temperature=1.0,
        seed=1,
        dry_multiplier=1.0,
        dry_allowed_length=data.draw(st.integers(0, 3)),
        dry_sequence_breakers=BREAKERS,
    )
    logits = logits[: len(ids)]
    assert_same(
        native.apply(params, logits, ids, accepted),
        reference_of(params, logits, ids, accepted, breakers=breakers),
    )
