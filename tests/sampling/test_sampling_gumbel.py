"""Gumbel-max: the hash against integer arithmetic, the distribution by a statistical test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_sampler.gumbel import (
    LEAST_UNIFORM,
    MOST_UNIFORM,
    element_seed,
    gumbel_argmax,
    gumbel_noise,
    gumbel_uniform,
    pcg_hash,
)
from sampling_strategies import assert_draws_follow, softmax64, tied_logits

from eliza_ffi.errors import InvalidArgumentError

WORD = 2**32

# position, seed_offset, token, hash, bits of the uniform number; from docs/sampling.md.
VECTORS = [
    (0, 0, 0, 0x07BB2FE2, 0x3CF765FC),
    (0, 0, 1, 0xA8BEEA3C, 0x3F28BEEA),
    (1, 0, 0, 0x703CC78A, 0x3EE0798F),
    (5, 42, 151643, 0x8EF68E46, 0x3F0EF68E),
    (5, 42, 262143, 0x0AAD5F34, 0x3D2AD5F3),
    (0, 0, 4734895, 0x00000041, 0x33D6BF95),  # below 1e-7
    (0, 0, 60418823, 0xFFFFFF90, 0x3F7FFFFE),  # rounds to 1
]

seeds = st.integers(0, WORD - 1)
positions = st.integers(0, 2**20)


def pcg_by_hand(state: int) -> int:
    state = (state * 747796405 + 2891336453) % WORD
    word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737 % WORD
    return (word >> 22) ^ word


@pytest.mark.parametrize(("position", "seed_offset", "token", "hashed", "bits"), VECTORS)
def test_the_hash_matches_the_documented_test_vectors(
    position: int, seed_offset: int, token: int, hashed: int, bits: int
) -> None:
    state = (element_seed(position, seed_offset) + token) % WORD
    assert pcg_by_hand(state) == hashed
    assert int(pcg_hash(state)) == hashed
    assert int(gumbel_uniform(position, seed_offset, [token]).view(np.uint32)[0]) == bits


@given(seeds)
def test_the_hash_agrees_with_integer_arithmetic(state: int) -> None:
    assert int(pcg_hash(state)) == pcg_by_hand(state)


@pytest.mark.slow
def test_the_hash_has_no_collisions_in_a_sample() -> None:
    words = pcg_hash(np.arange(2**20, dtype=np.uint32) * np.uint32(4001))
    assert len(np.unique(words)) == len(words)


@given(positions, seeds, st.lists(st.integers(0, 2**18), min_size=1, max_size=20))
def test_uniforms_are_the_rounded_hash_clamped_to_the_limits(
    position: int, seed: int, tokens: list[int]
) -> None:
    uniform = gumbel_uniform(position, seed, tokens)
    assert uniform.dtype == np.float32
    for token, u in zip(tokens, uniform, strict=True):
        hashed = pcg_by_hand(((position + seed) * 2654435761 + token) % WORD)
        exact = float(np.float32(hashed)) / WORD
        assert float(u) == min(max(exact, float(LEAST_UNIFORM)), float(MOST_UNIFORM))


def test_the_limits_are_the_nearest_single_precision_numbers() -> None:
    assert int(LEAST_UNIFORM.view(np.uint32)) == 0x33D6BF95
    assert int(MOST_UNIFORM.view(np.uint32)) == 0x3F7FFFFE
    least, most = gumbel_noise([LEAST_UNIFORM, MOST_UNIFORM])
    assert least == pytest.approx(-math.log(-math.log(1e-7)), abs=1e-6)
    assert most == pytest.approx(23 * math.log(2), abs=1e-5)


@given(tied_logits, positions, seeds)
def test_gumbel_draws_the_argmax_of_logit_plus_noise(
    logits: list[float], position: int, seed: int
) -> None:
    scores = [
        np.float32(logit) + gumbel_noise(gumbel_uniform(position, seed, [token]))[0]
        for token, logit in enumerate(logits)
    ]
    assert gumbel_argmax(logits, position, seed) == int(np.argmax(scores))


@given(tied_logits, positions, seeds, st.sampled_from([0.25, 0.5, 2.0, 4.0]))
def test_scaling_the_noise_equals_dividing_the_logits_by_the_temperature(
    logits: list[float], position: int, seed: int, temperature: float
) -> None:
    # The temperatures are powers of 2, so neither computation rounds.
    divided = [logit / temperature for logit in logits]
    assert gumbel_argmax(logits, position, seed, temperature) == gumbel_argmax(
        divided, position, seed
    )


@given(tied_logits, positions, seeds)
def test_a_temperature_of_0_is_the_argmax(logits: list[float], position: int, seed: int) -> None:
    assert gumbel_argmax(logits, position, seed, 0.0) == int(np.argmax(logits))


@given(tied_logits, positions, seeds, st.data())
def test_the_draw_does_not_depend_on_disallowed_tokens(
    logits: list[float], position: int, seed: int, data: st.DataObject
) -> None:
    finite = [token for token, logit in enumerate(logits) if logit > -np.inf]
    allowed_ids = data.draw(st.lists(st.sampled_from(finite), min_size=1, unique=True))
    alone = gumbel_argmax(np.take(logits, allowed_ids), position, seed, tokens=allowed_ids)
    masked = [logit if token in allowed_ids else -np.inf for token, logit in enumerate(logits)]
    assert gumbel_argmax(masked, position, seed) == alone
    # It does not depend on their logits either: an unconstrained draw that is allowed is the same.
    free = gumbel_argmax(logits, position, seed)
    assert free == alone or free not in allowed_ids


def test_gumbel_draws_do_not_depend_on_order_or_history() -> None:
    logits = np.random.default_rng(1).normal(size=100).astype(np.float32)
    forward = [gumbel_argmax(logits, position, 42) for position in range(30)]
    backward = [gumbel_argmax(logits, position, 42) for position in reversed(range(30))]
    assert forward == backward[::-1]
    shuffled = np.random.default_rng(2).permutation(100)
    assert forward == [
        gumbel_argmax(logits[shuffled], position, 42, tokens=shuffled) for position in range(30)
    ]
    assert len(set(forward)) > 10


def test_the_lowest_token_id_wins_a_tie() -> None:
    inf = np.inf
    collision = first_collision()
    assert gumbel_argmax([0.0, 0.0], 0, 0, tokens=collision) == min(collision)
    assert gumbel_argmax([0.0, 0.0], 0, 0, tokens=collision[::-1]) == min(collision)
    assert gumbel_argmax([-inf, 3.0], 0, 0) == 1


def first_collision() -> list[int]:
    """Return two tokens with the same uniform number, of 24 bits, at position 0 with seed 0."""
    uniform = gumbel_uniform(0, 0, np.arange(2**14))
    order = np.argsort(uniform, kind="stable")
    same = np.flatnonzero(np.diff(uniform[order]) == 0)
    return [int(order[same[0]]), int(order[same[0] + 1])]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax(temperature: float) -> None:
    logits = np.random.default_rng(3).normal(size=10).astype(np.float32)
    draws = [gumbel_argmax(logits, position, 7, temperature) for position in range(6000)]
    assert_draws_follow(draws, softmax64(logits / temperature))


def test_draws_over_seeds_at_one_position_follow_the_softmax() -> None:
    logits = np.random.default_rng(4).normal(size=10).astype(np.float32)
    draws = [gumbel_argmax(logits, 12, seed) for seed in range(6000)]
    assert_draws_follow(draws, softmax64(logits))


def test_tokens_below_the_range_of_the_noise_are_never_drawn() -> None:
    # The noise of two tokens differs by at most 18.72.
    width = float(np.subtract(*gumbel_noise([MOST_UNIFORM, LEAST_UNIFORM])))
    assert width == pytest.approx(18.72, abs=0.01)
    assert math.exp(-width) == pytest.approx(7.4e-9, rel=0.01)


def test_neighbouring_seeds_share_noise_one_position_apart() -> None:
    tokens = np.arange(50)
    np.testing.assert_array_equal(gumbel_uniform(9, 7, tokens), gumbel_uniform(8, 8, tokens))


@pytest.mark.parametrize(("position", "seed"), [(-1, 0), (0, -1), (0, WORD)])
def test_positions_and_seeds_out_of_range_are_rejected(position: int, seed: int) -> None:
    with pytest.raises(InvalidArgumentError, match="32 bits"):
        gumbel_argmax([0.0], position, seed)


def test_tokens_and_logits_must_match_in_length() -> None:
    with pytest.raises(InvalidArgumentError, match="tokens: expected 1, one per logit, got 2"):
        gumbel_argmax([0.0], 0, 0, tokens=[1, 2])
    with pytest.raises(InvalidArgumentError, match="NaN"):
        gumbel_argmax([np.nan], 0, 0)
