"""Compare the native chain with its reference in numpy: candidates, logits and the drawn token.

Both compute in single precision. The C library's ``expf`` or a fused multiply-add may round
differently. A logit on the edge of a truncation may then be kept by one implementation and removed
by the other. Such examples are left out.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from effort import share
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from native_chain import (
    CHAINED,
    N_VOCAB,
    SETTINGS,
    NativeChain,
    assert_agree,
    assert_same,
    distinct,
    hundredths,
    is_on_an_edge,
    reference_of,
    with_fixtures,
)
from numpy_sampler import distribution
from numpy_sampler.gumbel import gumbel_uniform
from sampling_strategies import tied_logits

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.sampling import BOOK_ORDER, Sampling


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@given(logits=distinct, seed=st.integers(0, 2**32 - 2), data=st.data())
@with_fixtures
def test_every_native_sampler_matches_its_reference(
    native: NativeChain, name: str, logits: list[float], seed: int, data: st.DataObject
) -> None:
    changes = {"temperature": 1.0, "dry_sequence_breakers": (), **data.draw(SETTINGS[name])}
    params = Sampling(**changes, seed=seed)
    accepted = data.draw(st.lists(st.integers(0, 5), max_size=30))
    assert_agree(native, params, logits, accepted=accepted)


@pytest.mark.slow
@given(
    logits=distinct,
    infinite=st.dictionaries(st.integers(0, 59), st.just(-np.inf), max_size=6),
    seed=st.integers(0, 2**32 - 2),
    order=st.permutations([*CHAINED, "temperature"]),
    names=st.lists(st.sampled_from([*CHAINED, "gumbel"]), unique=True),
    temperature=st.sampled_from([0.0, 0.5, 0.7, 1.0, 1.5]),
    base=st.sampled_from([0, 1000]),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(300))
def test_random_native_chains_match_their_reference(
    native: NativeChain,
    logits: list[float],
    infinite: dict[int, float],
    seed: int,
    order: list[str],
    names: list[str],
    temperature: float,
    base: int,
    data: st.DataObject,
) -> None:
    changes: dict[str, Any] = {"temperature": temperature, "dry_sequence_breakers": ()}
    for name in names:
        changes.update(data.draw(SETTINGS[name]))
    params = Sampling(**changes, samplers=";".join(order), seed=seed)
    logits = [infinite.get(i, logit) for i, logit in enumerate(logits)]
    assume(max(logits) > -np.inf)
    accepted = [base + token for token in data.draw(st.lists(st.integers(0, 5), max_size=30))]
    ids = [base + 7 * i if base else i for i in range(len(logits))]
    assert_agree(native, params, logits, ids, accepted)


def test_typical_ignores_tokens_removed_by_top_n_sigma(native: NativeChain) -> None:
    logits = [0.0, 2.0, 0.5, 3.0, 1.0, -20.0, 1.5]
    params = Sampling(temperature=1.0, top_n_sigma=0.5, typical_p=0.5, seed=1)
    ids = list(range(len(logits)))
    for ordered in (ids, ids[::-1]):
        assert_agree(native, params, [logits[i] for i in ordered], ordered)


@pytest.mark.slow
@given(
    logits=distinct,
    temperature=hundredths(0.2, 3),
    top_k=st.integers(1, 70),
    min_p=hundredths(0, 0.9),
)
@with_fixtures
def test_in_the_books_order_the_native_chain_has_the_books_distribution(
    native: NativeChain, logits: list[float], temperature: float, top_k: int, min_p: float
) -> None:
    # Without top-p: the book's top-p counts tokens removed by top-k and min-p, llama.cpp's does
    # not.
    params = Sampling(
        temperature=temperature, top_k=top_k, min_p=min_p, samplers=BOOK_ORDER, seed=1
    )
    ids = list(range(len(logits)))
    assume(not is_on_an_edge(params, logits, ids))
    left = native.apply(params, logits, ids)
    book = distribution(logits, temperature, top_k, least=min_p)
    by_token = np.argsort(left.ids), np.argsort(book.ids)
    assert left.ids[by_token[0]].tolist() == book.ids[by_token[1]].tolist()
    np.testing.assert_allclose(left.probs[by_token[0]], book.probs[by_token[1]], rtol=1e-4)


@pytest.mark.slow
@given(logits=tied_logits, seed=st.integers(0, 2**32 - 2), name=st.sampled_from(["", "gumbel"]))
@with_fixtures
def test_native_and_reference_agree_on_ties_and_minus_infinity(
    native: NativeChain, logits: list[float], seed: int, name: str
) -> None:
    params = Sampling(temperature=1.0, seed=seed, draw=name or "cdf")
    ids = list(range(len(logits)))
    assert native.apply(params, logits, ids).token == reference_of(params, logits, ids).token


@pytest.mark.slow
@given(logits=tied_logits, k=st.integers(1, 45))
@with_fixtures
def test_native_and_reference_top_k_keep_the_same_logits_among_ties(
    native: NativeChain, logits: list[float], k: int
) -> None:
    params = Sampling(temperature=1.0, top_k=k, seed=1)
    ids = list(range(len(logits)))
    left = native.apply(params, logits, ids)
    np.testing.assert_array_equal(
        np.sort(left.logits), np.sort(reference_of(params, logits, ids).logits)
    )


# ---- the whole vocabulary, and unusable logits ---------------------------------------------------


@pytest.mark.slow
def test_native_and_reference_agree_on_the_whole_vocabulary(native: NativeChain) -> None:
    rng = random.Random(1)
    logits = np.random.default_rng(2).normal(scale=3, size=N_VOCAB).astype(np.float32).tolist()
    for changes in (
        {"top_k": 300},
        {"top_p": 0.9},
        {"min_p": 0.02},
        {"typical_p": 0.8},
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
        {"draw": "gumbel"},
        {"mirostat": 2},
    ):
        for _ in range(3):
            params = Sampling(temperature=0.9, seed=rng.randrange(2**32 - 1), **changes)
            assert_agree(native, params, logits)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**18))
@with_fixtures
def test_native_and_reference_gumbel_uniforms_are_bit_identical(
    native: NativeChain, position: int, seed: int, token: int
) -> None:
    assert native.uniform(position, seed, token) == float(
        gumbel_uniform(position, seed, [token])[0]
    )


@pytest.mark.parametrize("changes", [{"logit_bias": ((0, -np.inf),)}, {"top_n_sigma": 0.5}])
def test_native_xtc_with_threshold_0_never_leaves_only_banned_tokens(
    native: NativeChain, changes: dict[str, Any]
) -> None:
    params = Sampling(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.0, seed=1, **changes)
    logits, ids = [0.0, 2.0, 2.5, 3.0], [0, 1, 2, 3]
    assert_same(native.apply(params, logits, ids), reference_of(params, logits, ids))


@pytest.mark.parametrize("changes", [{}, {"temperature": 1.0}, {"mirostat": 2, "temperature": 1.0}])
def test_native_and_reference_reject_a_bias_that_bans_everything(
    native: NativeChain, changes: dict[str, Any]
) -> None:
    params = Sampling(**changes, logit_bias=((0, -np.inf), (1, -np.inf)), seed=1)
    with pytest.raises(InvalidArgumentError, match="to choose from"):
        native.apply(params, [1.0, 2.0], [0, 1])
    with pytest.raises(InvalidArgumentError, match="to choose from"):
        reference_of(params, [1.0, 2.0], [0, 1])


def test_native_and_reference_reject_unusable_logits(native: NativeChain) -> None:
    params = Sampling(temperature=1.0, seed=1)
    for logits in ([np.nan, 1.0], [-np.inf, -np.inf], [np.inf, 1.0]):
        with pytest.raises(InvalidArgumentError):
            native.apply(params, logits, [0, 1])
        with pytest.raises(InvalidArgumentError):
            reference_of(params, logits, [0, 1])
