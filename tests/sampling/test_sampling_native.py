"""Compare the native chain with the definitions of its samplers: tokens, logits and draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import share
from gumbel import gumbel_argmax
from native_chain import NativeChain
from sampler_chain import probabilities, remaining
from token_bytes import TokenBytes

from eliza_ffi.sampling import BOOK_ORDER, Sampling

SETTINGS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6},
    "dynamic temperature": {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.83},
    "min_p": {"min_p": 0.07},
    "typ_p": {"typical_p": 0.71},
    "top_n_sigma": {"top_n_sigma": 1.3},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.04},
    "penalties": {"repeat_penalty": 1.5, "frequency_penalty": 0.7, "presence_penalty": 0.3},
    "favoured repetitions": {"repeat_penalty": 0.8, "frequency_penalty": -0.5, "repeat_last_n": 9},
    "dry": {"dry_multiplier": 0.5, "dry_base": 1.6, "dry_allowed_length": 2},
    "dry, few tokens": {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_penalty_last_n": 9},
    "logit_bias": {"logit_bias": ((3, 2.5), (4, -0.5), (5, -np.inf))},
}
ORDER = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"]


def check(native: NativeChain, dice: np.random.Generator, **settings: Any) -> None:
    """Compare one chain, after a text of few different tokens."""
    sampling = Sampling(**{"temperature": 1.0, "dry_sequence_breakers": (), "seed": 1, **settings})
    logits = dice.normal(scale=3, size=60).astype(np.float32).tolist()
    text = dice.integers(0, 6, size=30).tolist()
    found = native.apply(sampling, logits, range(60), text)
    expected = remaining(sampling, logits, range(60), text)
    assert found.left == pytest.approx(expected, rel=2e-5, abs=2e-5), sampling
    assert found.token in expected
    if sampling.draw == "gumbel":
        assert found.token == gumbel_argmax(expected, len(text), 1)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_native_sampler_matches_its_definition(native: NativeChain, name: str) -> None:
    dice = np.random.default_rng(1)
    for _ in range(30):
        check(native, dice, **SETTINGS[name])


@pytest.mark.slow
def test_random_native_chains_match_the_definitions(native: NativeChain) -> None:
    dice = np.random.default_rng(2)
    for _ in range(share(600)):
        settings: dict[str, Any] = {}
        for name in dice.choice([*SETTINGS], size=4, replace=False):
            settings |= SETTINGS[name]
        order = ";".join(dice.permutation([*ORDER, "temperature"]))
        check(native, dice, **settings, samplers=order, draw=str(dice.choice(["cdf", "gumbel"])))


def test_the_books_order_and_mirostat_match_the_definitions(native: NativeChain) -> None:
    dice = np.random.default_rng(3)
    for _ in range(30):
        check(native, dice, temperature=0.7, top_k=20, min_p=0.05, samplers=BOOK_ORDER)
        check(native, dice, mirostat=2, mirostat_tau=1.2)
        check(native, dice, mirostat=2, mirostat_tau=0.1)


@pytest.mark.parametrize(
    "settings",
    [
        {"top_n_sigma": 0.5, "typical_p": 0.5},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_n_sigma": 0.5},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0, "logit_bias": ((0, -np.inf),)},
    ],
)
def test_tokens_that_a_sampler_has_excluded_do_not_count(
    native: NativeChain, settings: dict[str, Any]
) -> None:
    logits = [0.0, 2.0, 0.5, 3.0, 1.0, -20.0, 1.5]
    sampling = Sampling(temperature=1.0, seed=1, **settings)
    for order in (range(7), range(6, -1, -1)):
        of_order = [logits[i] for i in order]
        expected = remaining(sampling, of_order, order)
        assert native.apply(sampling, of_order, order).left == pytest.approx(expected)


def test_adaptive_p_draws_tokens_of_the_target_probability(native: NativeChain) -> None:
    logits = [0.0, 0.5, 1.0, 1.5, 2.5]
    means = []
    for target in (0.05, 0.5):
        settings: dict[str, Any] = {"adaptive_target": target, "samplers": "temperature;adaptive_p"}
        drawn = [
            native.apply(Sampling(temperature=1.0, seed=seed, **settings), logits, range(5)).token
            for seed in range(200)
        ]
        means.append(np.mean([probabilities(dict(enumerate(logits)))[each] for each in drawn]))
    assert means[0] + 0.1 < means[1]


def test_dry_does_not_count_repetitions_across_a_breaker(
    native: NativeChain, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    colon = TokenBytes.from_file(path).texts.index(b":")
    text, logits = [300, colon, 301, 300, colon], [1.0, 2.0]
    for breakers, penalty in (((), 0.5), ((":",), 0.0)):
        sampling = Sampling(
            temperature=1.0, seed=1, dry_multiplier=0.5, dry_sequence_breakers=breakers
        )
        left = native.apply(sampling, logits, [301, 302], text).left
        assert left == pytest.approx({301: 1.0 - penalty, 302: 2.0})
