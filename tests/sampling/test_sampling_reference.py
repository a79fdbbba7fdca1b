"""Compare the nine stages with simple definitions, and test the two pipelines."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_sampler import stages as stage
from numpy_sampler.pipeline import distribution, sample_logits, sample_logits_f16
from sampling_strategies import (
    assert_draws_follow,
    distinct_logits,
    few_tokens,
    softmax64,
    tied_logits,
)

from eliza_ffi.errors import InvalidArgumentError

fractions = st.integers(0, 100).map(lambda n: n / 100)


def ranked(logits: list[float]) -> stage.Ranked:
    return stage.top_k(stage.softmax(logits), 0, cap=None)


# ---- 1: F16 to F32 ------------------------------------------------------------------------------


def test_widening_is_exact_for_all_half_precision_numbers() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    widened = stage.widen_f16(bits)
    by_definition = np.array(
        [struct.unpack("<e", struct.pack("<H", b))[0] for b in bits.tolist()], dtype=np.float32
    )
    np.testing.assert_array_equal(widened, by_definition)
    np.testing.assert_array_equal(stage.widen_f16(bits.tobytes()), widened)
    np.testing.assert_array_equal(stage.widen_f16(bits.view(np.float16)), widened)


def test_widening_rejects_other_types() -> None:
    with pytest.raises(InvalidArgumentError, match="float32"):
        stage.widen_f16(np.zeros(3, dtype=np.float32))


# ---- 2: repetition penalty ----------------------------------------------------------------------


@pytest.mark.slow
@given(tied_logits, st.lists(st.integers(-2, 45), max_size=12), st.sampled_from([0.5, 1.0, 1.25]))
def test_the_repetition_penalty_is_applied_once_per_occurrence(
    logits: list[float], previous: list[int], penalty: float
) -> None:
    """It divides positive logits and multiplies all others."""
    expected = [np.float32(logit) for logit in logits]
    for token in previous:
        if 0 <= token < len(expected):
            logit = expected[token]
            expected[token] = (
                logit / np.float32(penalty) if logit > 0 else logit * np.float32(penalty)
            )
    np.testing.assert_array_equal(stage.penalize_repeats(logits, previous, penalty), expected)


@given(distinct_logits, few_tokens)
def test_a_penalty_above_1_never_raises_a_logit(logits: list[float], token: int) -> None:
    penalized = stage.penalize_repeats(logits, [token], 1.2)
    assert (penalized <= np.asarray(logits, dtype=np.float32)).all()


# ---- 3: temperature -----------------------------------------------------------------------------


@given(distinct_logits, st.floats(0.01, 10))
def test_temperature_multiplies_by_the_rounded_reciprocal(
    logits: list[float], temperature: float
) -> None:
    inverse = np.float32(1) / np.float32(temperature)
    expected = [np.float32(logit) * inverse for logit in logits]
    np.testing.assert_array_equal(stage.scale_temperature(logits, temperature), expected)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_scaling_rejects_temperatures_that_are_not_positive(temperature: float) -> None:
    with pytest.raises(InvalidArgumentError, match="above 0"):
        stage.scale_temperature([1.0], temperature)


# ---- 4: softmax ---------------------------------------------------------------------------------


@given(tied_logits)
def test_softmax_matches_its_definition_in_single_precision(logits: list[float]) -> None:
    np.testing.assert_allclose(stage.softmax(logits), softmax64(logits), rtol=1e-5, atol=1e-37)


@given(distinct_logits, st.sampled_from([-1e30, -1e4, 1e4, 1e30]))
def test_softmax_neither_overflows_nor_underflows(logits: list[float], shift: float) -> None:
    probs = stage.softmax(np.asarray(logits, dtype=np.float32) + np.float32(shift))
    assert np.isfinite(probs).all()
    assert probs.sum() == pytest.approx(1, abs=1e-5)


def test_a_logit_of_minus_infinity_has_no_probability() -> None:
    np.testing.assert_array_equal(stage.softmax([1.0, -np.inf]), [1, 0])


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ([0.0, np.nan], r"logits\[1\] is NaN"),
        ([0.0, np.inf], r"logits\[1\] is \+inf"),
        ([-np.inf, -np.inf], "all logits are -inf"),
        ([], r"shape \[n\]"),
        ([[1.0]], r"shape \[n\]"),
    ],
)
def test_unusable_logits_are_rejected(logits: list[float], words: str) -> None:
    for function in (stage.softmax, stage.argmax, distribution):
        with pytest.raises(InvalidArgumentError, match=words):
            function(logits)


# ---- 5: top-k -----------------------------------------------------------------------------------


@given(tied_logits, st.integers(-1, 45), st.sampled_from([None, 4, 256]))
def test_top_k_is_a_prefix_of_a_stable_sort(logits: list[float], k: int, cap: int | None) -> None:
    probs = stage.softmax(logits)
    n = len(logits)
    kept = k if 0 < k < n else min(n, n if cap is None else cap)
    by_probability = sorted(range(n), key=lambda i: -probs[i])[:kept]
    top = stage.top_k(probs, k, cap)
    assert top.ids.tolist() == by_probability
    np.testing.assert_array_equal(top.probs, probs[by_probability])


def test_without_top_k_an_optional_cap_of_256_applies() -> None:
    probs = stage.softmax(np.linspace(0, 1, 1000))
    assert len(stage.top_k(probs, 0)) == 256
    assert len(stage.top_k(probs, 0, cap=None)) == 1000
    assert len(stage.top_k(probs, 999)) == 999  # explicit, so the cap does not apply


# ---- 6: min-p -----------------------------------------------------------------------------------


@given(tied_logits, fractions)
def test_min_p_keeps_tokens_above_a_fraction_of_the_largest(logits: list[float], p: float) -> None:
    before = ranked(logits)
    least = before.probs[0] * np.float32(p)
    expected = [i for i, prob in enumerate(before.probs) if i == 0 or prob >= least]
    assert stage.min_p(before, p).ids.tolist() == before.ids[expected].tolist()


# ---- 7: top-p -----------------------------------------------------------------------------------


@given(tied_logits, fractions)
def test_top_p_is_the_shortest_prefix_that_reaches_p(logits: list[float], p: float) -> None:
    before = ranked(logits)
    expected, total = 0, np.float32(0)
    for prob in before.probs:
        total += prob
        expected += 1
        if p < 1 and total >= np.float32(p):
            break
    assert stage.top_p(before, p).ids.tolist() == before.ids[:expected].tolist()


def test_top_p_keeps_five_tokens_in_the_books_example() -> None:
    probs = np.array([0.4, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01], dtype=np.float32)
    assert len(stage.top_p(stage.top_k(probs, 0), 0.95)) == 5


# ---- 8 and 9: renormalise and draw --------------------------------------------------------------


@given(tied_logits, st.integers(1, 40))
def test_renormalised_probabilities_sum_to_1_and_keep_their_ratios(
    logits: list[float], k: int
) -> None:
    before = stage.top_k(stage.softmax(logits), k)
    after = stage.renormalize(before)
    assert after.probs.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(
        after.probs * before.probs[0], before.probs * after.probs[0], rtol=1e-5
    )


@given(tied_logits, st.floats(0, 1, exclude_max=True, width=32))
def test_the_first_token_whose_cumulative_probability_reaches_r_is_drawn(
    logits: list[float], r: float
) -> None:
    candidates = stage.renormalize(ranked(logits))
    total = np.float32(0)
    expected = int(candidates.ids[-1])
    for token, prob in zip(candidates.ids.tolist(), candidates.probs, strict=True):
        total += prob
        if np.float32(r) <= total:
            expected = token
            break
    assert stage.draw(candidates, r) == expected


def test_the_last_candidate_is_drawn_if_rounding_leaves_a_gap() -> None:
    short = stage.Ranked(np.array([4, 7], np.int32), np.array([0.5, 0.4], np.float32))
    assert stage.draw(short, 0.99) == 7


# ---- pipelines ----------------------------------------------------------------------------------


def test_temperature_0_returns_the_penalized_argmax_without_a_random_number() -> None:
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    raw = np.array([1.0, 3.0, 2.75], dtype=np.float16)
    assert sample_logits_f16(raw, rng) == 1
    assert sample_logits_f16(raw, rng, repeat_penalty=1.5, previous=[1]) == 2
    assert sample_logits([0.0, 5.0, 5.0], rng) == 1
    assert rng.bit_generator.state == before


def test_sample_logits_does_not_change_logits_at_temperature_1() -> None:
    # Multiplying these logits by a reciprocal would round them; at temperature 1, they must not
    # change.
    logits = np.random.default_rng(2).normal(size=50).astype(np.float32)
    at_1 = distribution(logits, 1.0, cap=None)
    np.testing.assert_array_equal(at_1.probs, stage.renormalize(ranked(logits.tolist())).probs)
    # A temperature of 1 - 2**-24 changes the logits slightly.
    assert not np.array_equal(distribution(logits, 1 - 2**-24, cap=None).probs, at_1.probs)


def test_sample_logits_and_sample_logits_f16_draw_the_same_tokens() -> None:
    raw = np.random.default_rng(3).normal(size=300).astype(np.float16)
    for seed in range(50):
        settings = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
        half = sample_logits_f16(raw, np.random.default_rng(seed), **settings)
        assert half == sample_logits(
            raw.astype(np.float32), np.random.default_rng(seed), **settings
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.2, "top_k": 6, "top_p": 0.9},
    ],
)
def test_the_pipeline_draws_with_the_probabilities_it_computes(
    settings: dict[str, float],
) -> None:
    rng = np.random.default_rng(4)
    logits = np.random.default_rng(5).normal(size=12).astype(np.float32)
    draws = [sample_logits(logits, rng, **settings) for _ in range(4000)]  # type: ignore[arg-type]
    expected = np.zeros(12)
    left = distribution(logits, **settings)  # type: ignore[arg-type]
    expected[left.ids] = left.probs
    assert_draws_follow(draws, expected)


def test_a_vocabulary_of_one_token_always_gives_this_token() -> None:
    rng = np.random.default_rng(6)
    for temperature in (0.0, 1.0, 2.0):
        assert sample_logits([-3.0], rng, temperature, top_k=4, top_p=0.1, min_p=0.5) == 0
