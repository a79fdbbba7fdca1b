"""Compare the numpy versions of llama.cpp's samplers with simple definitions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy_sampler import (
    AdaptiveP,
    Candidates,
    Dist,
    Dry,
    Greedy,
    Gumbel,
    Infill,
    InfillVocabulary,
    LogitBias,
    MersenneTwister,
    MinP,
    Mirostat,
    MirostatV2,
    Penalties,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
    breaker_sequences,
)
from numpy_sampler.candidates import Sampler
from sampling_strategies import assert_draws_follow, distinct_logits, histories, softmax64

from eliza_ffi.errors import InvalidArgumentError

fractions = st.integers(1, 99).map(lambda n: n / 100)


def kept(sampler: Sampler, logits: list[float]) -> set[int]:
    """Return the tokens that a sampler keeps with a logit above ``-inf``."""
    candidates = Candidates.of(logits)
    sampler.apply(candidates)
    return {int(i) for i in candidates.ids[candidates.logits > -np.inf]}


def ranked(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: -logits[i])


def not_near(values: np.ndarray, threshold: float) -> None:  # type: ignore[type-arg]
    """Skip examples in which single precision may decide differently."""
    assume((np.abs(np.asarray(values) - threshold) > 1e-5).all())


# ---- truncation ---------------------------------------------------------------------------------


@given(distinct_logits, st.integers(0, 45))
def test_top_k_keeps_the_k_largest_logits(logits: list[float], k: int) -> None:
    assert kept(TopK(k), logits) == set(ranked(logits)[: k or None])


@given(distinct_logits, fractions)
def test_top_p_keeps_the_shortest_prefix_that_reaches_p(logits: list[float], p: float) -> None:
    order = ranked(logits)
    cumulative = np.cumsum(softmax64(logits)[order])
    not_near(cumulative, p)
    assert kept(TopP(p), logits) == set(order[: int(np.argmax(cumulative >= p)) + 1])


@given(distinct_logits, fractions)
def test_min_p_keeps_tokens_above_a_fraction_of_the_most_likely(
    logits: list[float], p: float
) -> None:
    probs = softmax64(logits)
    not_near(probs / probs.max(), p)
    assert kept(MinP(p), logits) == set(np.flatnonzero(probs >= p * probs.max()).tolist())


@pytest.mark.slow
@given(distinct_logits, fractions)
def test_typical_keeps_tokens_whose_surprise_is_closest_to_the_entropy(
    logits: list[float], p: float
) -> None:
    probs = softmax64(logits)
    shifted = np.abs(-np.log(probs) + (probs * np.log(probs)).sum())
    order = np.argsort(shifted)
    assume((np.diff(shifted[order]) > 1e-4).all())
    cumulative = np.cumsum(probs[order])
    not_near(cumulative, p)
    reached = cumulative > p
    n = int(reached.argmax()) + 1 if reached.any() else len(logits)
    assert kept(TypicalP(p), logits) == set(order[:n].tolist())


def test_typical_ignores_tokens_of_probability_0() -> None:
    logits = [2.0, 1.0, 0.5, 0.0]
    masked = [*logits, -np.inf, -200.0]
    assert kept(TypicalP(0.6), masked) == kept(TypicalP(0.6), logits)


@pytest.mark.slow
@given(distinct_logits, st.integers(1, 30).map(lambda n: n / 10))
def test_top_n_sigma_keeps_logits_within_n_deviations_of_the_largest(
    logits: list[float], n: float
) -> None:
    assume(len(logits) > 1)
    least = max(logits) - n * float(np.std(logits))
    assume(min(abs(logit - least) for logit in logits) > 1e-4)
    expected = {i for i, logit in enumerate(logits) if logit >= least}
    assert kept(TopNSigma(n), logits) == expected
    assert kept(TopNSigma(n), [*logits, -np.inf]) == expected  # not part of the standard deviation


@given(distinct_logits, st.integers(0, 50).map(lambda n: n / 100))
def test_xtc_removes_all_top_tokens_except_the_least_likely(
    logits: list[float], threshold: float
) -> None:
    probs = softmax64(logits)
    not_near(probs, threshold)
    top = [i for i in ranked(logits) if probs[i] >= threshold]
    expected = set(range(len(logits))) - set(top[:-1])
    assert kept(Xtc(1.0, threshold, seed=1), logits) == expected


def test_xtc_never_leaves_only_banned_tokens() -> None:
    assert kept(Xtc(1.0, 0.0, seed=1), [1.0, -np.inf, 0.0, -np.inf]) == {2}


def test_xtc_acts_as_often_as_its_probability_says() -> None:
    sampler = Xtc(0.3, 0.1, seed=5)
    acted = [len(kept(sampler, [1.0, 1.0, 1.0])) < 3 for _ in range(3000)]
    assert_draws_follow([int(a) for a in acted], [0.7, 0.3])


@given(distinct_logits)
def test_samplers_that_are_off_change_nothing(logits: list[float]) -> None:
    for sampler in (
        TopK(0), TopP(1.0), MinP(0.0), TypicalP(1.0), TopNSigma(0.0), Xtc(0.0), Xtc(1.0, 0.6),
        Penalties(), Penalties(last_n=0, repeat=2.0), Dry(), Temperature(1.0), LogitBias({}),
    ):  # fmt: skip
        sampler.accept(0)
        candidates = Candidates.of(logits)
        sampler.apply(candidates)
        np.testing.assert_array_equal(candidates.logits, np.asarray(logits, dtype=np.float32))
        assert candidates.ids.tolist() == list(range(len(logits)))


# ---- single logits ------------------------------------------------------------------------------


@given(distinct_logits, histories, st.integers(1, 12))
def test_penalties_follow_their_formula(
    logits: list[float], history: list[int], last_n: int
) -> None:
    sampler = Penalties(last_n, repeat=1.25, frequency=0.5, presence=0.25)
    for token in history:
        sampler.accept(token)
    candidates = Candidates.of(logits)
    sampler.apply(candidates)
    counts = Counter(history[-last_n:])
    for token, logit in enumerate(logits):
        if counts[token]:
            logit = logit / 1.25 if logit > 0 else logit * 1.25
            logit -= 0.5 * counts[token] + 0.25
        assert candidates.logits[token] == pytest.approx(logit, abs=1e-5)


@given(distinct_logits)
def test_a_bias_is_added_and_minus_infinity_bans_a_token(logits: list[float]) -> None:
    assume(len(logits) > 1)
    candidates = Candidates.of(logits)
    LogitBias({0: -math.inf, 1: 1.5, 99: 3.0}).apply(candidates)
    assert candidates.logits[0] == -np.inf
    assert candidates.logits[1] == np.float32(logits[1]) + np.float32(1.5)


def z_algorithm(latest_first: list[int]) -> list[int]:
    """Return, for each k, the length of the longest suffix that also ends k tokens earlier."""
    n = len(latest_first)
    z, left_edge, right_edge = [0] * n, 0, 0
    for k in range(1, n):
        if k < right_edge:
            z[k] = min(right_edge - k, z[k - left_edge])
        while k + z[k] < n and latest_first[z[k]] == latest_first[k + z[k]]:
            z[k] += 1
        if k + z[k] > right_edge:
            left_edge, right_edge = k, k + z[k]
    return z


@given(histories, st.integers(1, 3), st.lists(st.integers(0, 5), max_size=2))
def test_dry_penalises_tokens_that_extend_a_repetition(
    history: list[int], allowed: int, breakers: list[int]
) -> None:
    sampler = Dry(0.5, 2.0, allowed, 100, [(breaker,) for breaker in breakers])
    for token in history:
        sampler.accept(token)
    candidates = Candidates.of([0.0] * 6)
    sampler.apply(candidates)

    latest_first = history[::-1]
    reach = next((i for i, t in enumerate(latest_first) if t in breakers), len(history))
    longest: dict[int, int] = {}
    if len(history) > allowed:
        for k, length in enumerate(z_algorithm(latest_first)):
            if k > 0 and min(length, reach) >= allowed:
                token = latest_first[k - 1]
                longest[token] = max(longest.get(token, 0), min(length, reach))
    expected = [
        -0.5 * 2.0 ** (longest[token] - allowed)
        if token in longest and token not in breakers
        else 0
        for token in range(6)
    ]
    np.testing.assert_allclose(candidates.logits, expected)


def test_dry_follows_llama_cpps_example() -> None:
    # "a b c c b c y a b c": c would extend a repetition of 3 tokens, y of 2 tokens, b of 1 token.
    a, b, c, y = range(4)
    sampler = Dry(1.0, 2.0, allowed_length=1)
    for token in (a, b, c, c, b, c, y, a, b, c):
        sampler.accept(token)
    candidates = Candidates.of([0.0] * 4)
    sampler.apply(candidates)
    assert candidates.logits.tolist() == [0.0, -1.0, -4.0, -2.0]


def test_dry_stops_at_a_breaker_of_several_tokens() -> None:
    def penalised(breakers: list[tuple[int, ...]]) -> list[float]:
        sampler = Dry(1.0, 2.0, 1, breakers=breakers)
        for token in (1, 8, 9, 2, 3, 4, 1, 8, 9, 2, 3):
            sampler.accept(token)
        candidates = Candidates.of([0.0] * 10)
        sampler.apply(candidates)
        return [float(logit) for logit in candidates.logits[[4]]]

    assert penalised([]) == [-16.0]
    assert penalised([(8, 9)]) == [-2.0]
    assert penalised([(8, 7)]) == [-16.0]


def test_dry_penalties_do_not_overflow() -> None:
    sampler = Dry(1.0, 1e6, 0, 200)
    for token in [0] * 150:
        sampler.accept(token)
    candidates = Candidates.of([0.0, 0.0])
    sampler.apply(candidates)
    assert np.isfinite(candidates.logits).all()


def test_breakers_may_begin_inside_a_token() -> None:
    pieces = [b"a", b"b", b"ab", b"xa", b"xabx", b"c", b"aa"]

    def tokenize(text: bytes) -> list[int]:
        return [pieces.index(bytes([byte])) for byte in text]

    found = breaker_sequences(["ab", "c"], pieces, tokenize)
    assert sorted(found) == [(0, 1), (2,), (3, 1), (4,), (5,), (6, 1)]


# ---- temperature --------------------------------------------------------------------------------


@given(distinct_logits, st.floats(0.1, 5))
def test_temperature_divides_the_logits(logits: list[float], temperature: float) -> None:
    candidates = Candidates.of(logits)
    Temperature(temperature).apply(candidates)
    expected = np.asarray(logits, dtype=np.float32) / np.float32(temperature)
    np.testing.assert_array_equal(candidates.logits, expected)


@given(distinct_logits)
def test_temperature_0_keeps_only_the_largest_logit(logits: list[float]) -> None:
    assert kept(Temperature(0.0), logits) == {int(np.argmax(logits))}


@given(distinct_logits, st.sampled_from([0.3, 0.5, 2.0]), st.sampled_from([0.5, 1.0, 2.0]))
def test_dynamic_temperature_follows_the_entropy(
    logits: list[float], distance: float, exponent: float
) -> None:
    assume(len(logits) > 1)
    probs = softmax64(logits)
    entropy = -(probs[probs > 0] * np.log(probs[probs > 0])).sum() / np.log(len(logits))
    low, high = max(0.0, 1.0 - distance), 1.0 + distance
    expected = low + (high - low) * entropy**exponent
    assume(entropy > 0.05 and expected > 0.05)  # otherwise single precision has too few digits
    candidates = Candidates.of(logits)
    Temperature(1.0, distance, exponent).apply(candidates)
    np.testing.assert_allclose(
        candidates.logits, np.sort(np.float32(logits))[::-1] / expected, rtol=1e-4, atol=1e-6
    )


# ---- draws --------------------------------------------------------------------------------------


def test_the_generator_is_the_mersenne_twister_of_the_cpp_standard() -> None:
    random = MersenneTwister(5489)
    assert [random.word() for _ in range(10000)][-1] == 4123659995
    random.reset()
    assert random.word() == 3499211612


def test_draws_are_reproducible_with_a_seed_and_random_without() -> None:
    logits = np.zeros(1000)
    draws = []
    for sampler in (Dist(3), Dist(3), Dist(None), Dist(None)):
        for _ in range(2):
            candidates = Candidates.of(logits)
            sampler.apply(candidates)
            draws.append(candidates.token)
        sampler.reset()
    assert draws[:2] == draws[2:4]
    assert len(set(draws[4:])) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dist", "gumbel"])
@pytest.mark.parametrize(
    "truncate", [None, TopK(4), TopP(0.8), MinP(0.1), TypicalP(0.7), TopNSigma(1.5), Xtc(1.0, 0.1)]
)
def test_both_draws_follow_the_softmax_of_the_remaining_tokens(
    name: str, truncate: Sampler | None
) -> None:
    logits = np.random.default_rng(8).normal(size=12).astype(np.float32)
    last: Sampler = Dist(11) if name == "dist" else Gumbel(11)
    expected = np.zeros(12)
    draws = []
    for position in range(4000):
        candidates = Candidates.of(logits, position=position)
        if truncate is not None:
            truncate.apply(candidates)
        if position == 0:
            expected[candidates.ids] = softmax64(candidates.logits)
        last.apply(candidates)
        draws.append(candidates.token)
    assert_draws_follow(draws, expected)


@given(distinct_logits)
def test_greedy_takes_the_largest_logit(logits: list[float]) -> None:
    candidates = Candidates.of(logits)
    Greedy().apply(candidates)
    assert candidates.token == int(np.argmax(logits))


@pytest.mark.parametrize("version", [Mirostat, MirostatV2])
def test_mirostat_keeps_the_surprise_at_its_target(version: type[MirostatV2]) -> None:
    logits = -np.log(np.arange(1, 2001)) * 1.1  # Zipf's law
    sampler = version(3.0, 0.1, 1, 2000) if version is Mirostat else version(3.0, 0.1, 1)
    surprises = []
    for _ in range(600):
        candidates = Candidates.of(logits)
        sampler.apply(candidates)
        assert candidates.selected is not None
        surprises.append(-math.log2(candidates.probs[candidates.selected]))
    assert np.mean(surprises[100:]) == pytest.approx(3.0, abs=0.1)
    sampler.reset()
    assert sampler.mu == 6


@pytest.mark.parametrize("sampler", [Mirostat(5, 0.1, 1, 8), MirostatV2(5, 0.1, 1)])
def test_mirostat_handles_one_token_and_equal_logits(sampler: MirostatV2) -> None:
    for logits in ([1.0], [0.0] * 8):
        candidates = Candidates.of(logits)
        sampler.apply(candidates)
        assert candidates.token < len(logits)


def test_adaptive_p_prefers_the_token_closest_to_its_target() -> None:
    logits = np.log([0.6, 0.3, 0.1])
    for target, favourite in ((0.6, 0), (0.3, 1), (0.1, 2)):
        sampler = AdaptiveP(target, 0.0, seed=2)
        draws = []
        for _ in range(300):
            candidates = Candidates.of(logits)
            sampler.apply(candidates)
            draws.append(candidates.token)  # not accepted, so the mean stays at the target
        assert Counter(draws).most_common(1)[0][0] == favourite


def test_adaptive_p_compensates_for_accepted_tokens() -> None:
    sampler = AdaptiveP(0.4, 0.5, seed=3)
    before = Candidates.of(np.log([0.5, 0.5]))
    sampler.apply(before)
    sampler.accept(before.token)
    # The mean rose from 0.4 to (0.5 + 0.5 * 0.8) / (1 + 0.5 * 2) = 0.45, so the target is now 0.35.
    candidates = Candidates.of(np.log([0.35, 0.65]))
    sampler.apply(candidates)
    assert candidates.logits[0] == pytest.approx(5.0, abs=1e-4)
    sampler.reset()
    candidates = Candidates.of(np.log([0.4, 0.6]))
    sampler.apply(candidates)
    assert candidates.logits[0] == pytest.approx(5.0, abs=1e-4)


def test_adaptive_p_with_a_negative_target_does_not_change_probabilities() -> None:
    logits = np.log([0.2, 0.8])
    sampler = AdaptiveP(-1.0, seed=4)
    draws = []
    for _ in range(2000):
        candidates = Candidates.of(logits)
        sampler.apply(candidates)
        draws.append(candidates.token)
    assert_draws_follow(draws, [0.2, 0.8])


# ---- infill -------------------------------------------------------------------------------------

WORDS = InfillVocabulary([b"", b"hel", b"hello", b"world", b"x"], frozenset({0}), 0)


@pytest.mark.parametrize(
    ("probs", "expected"),
    [
        ([0.5, 0.2, 0.1, 0.1, 0.1], [0]),  # the end is likely: only it is kept
        ([0.001, 0.3, 0.25, 0.439, 0.01], [0, 1, 3]),  # "hello" is merged into "hel"
        ([0.001, 0.25, 0.3, 0.439, 0.01], [0, 2, 3]),  # "hel" is merged into "hello"
        ([0.001, 0.22, 0.01, 0.75, 0.019], [0, 3]),  # tokens below a third of the rest are removed
    ],
)
def test_infill_keeps_the_end_or_the_likely_tokens(probs: list[float], expected: list[int]) -> None:
    candidates = Candidates.of(np.log(probs))
    Infill(WORDS).apply(candidates)
    assert sorted(candidates.ids.tolist()) == expected
    assert candidates.probs.sum() == pytest.approx(1)


@pytest.mark.parametrize("candidates", [[*range(99), 99], [*range(99)]])
def test_infill_ends_the_turn_if_no_token_is_likely_enough(candidates: list[int]) -> None:
    vocabulary = InfillVocabulary([b"%d" % i for i in range(10, 110)], frozenset({99}), 99)
    left = Candidates.of([0.0 if token < 99 else -30.0 for token in candidates], candidates)
    Infill(vocabulary).apply(left)
    assert left.ids.tolist() == [99]


# ---- candidates ---------------------------------------------------------------------------------


def test_candidates_reject_unusable_logits() -> None:
    with pytest.raises(InvalidArgumentError, match=r"logits\[0\] is NaN"):
        Candidates.of([np.nan])
    with pytest.raises(InvalidArgumentError, match="ids: expected 1, one per logit, got 2"):
        Candidates.of([1.0], [1, 2])
    with pytest.raises(InvalidArgumentError, match="no token has been drawn"):
        _ = Candidates.of([1.0]).token
    banned = Candidates.of([1.0])
    LogitBias({0: -math.inf}).apply(banned)
    with pytest.raises(InvalidArgumentError, match="nothing to choose"):
        Dist(1).apply(banned)
