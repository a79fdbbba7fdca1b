"""The settings and the chain of samplers in numpy: order, presets and parameters."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_sampler import Chain, InfillVocabulary
from sampling_strategies import assert_draws_follow, distinct_logits, softmax64

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.sampling import (
    BOOK_ORDER,
    DEFAULT_ORDER,
    PRESETS,
    SAMPLER_NAMES,
    Sampling,
    parse_order,
)

SAMPLED = {"temperature": 1.0, "seed": 1}


# ---- the order ----------------------------------------------------------------------------------


def test_samplers_run_in_the_order_of_the_string() -> None:
    settings: dict[str, Any] = {"top_k": 3, "top_p": 0.5, "temperature": 0.5, "seed": 1}
    default = Chain(Sampling(**settings), 4).describe()
    assert default.index("TopK") < default.index("TopP") < default.index("Temperature")
    other = Chain(Sampling(**settings, samplers="temperature;top_p;top_k"), 4).describe()
    assert other.index("Temperature") < other.index("TopP") < other.index("TopK")


def test_temperature_before_and_after_top_p_keeps_different_tokens() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    last = Sampling(top_p=0.7, temperature=2.0, seed=1)
    first = Sampling(top_p=0.7, temperature=2.0, seed=1, samplers="temperature;top_p")
    assert sorted(Chain(last, 4).apply(logits).ids.tolist()) == [0, 1]
    assert sorted(Chain(first, 4).apply(logits).ids.tolist()) == [0, 1, 2]


@given(st.permutations(SAMPLER_NAMES[:-1]), st.integers(0, 10))
def test_parse_order_keeps_any_order(names: list[str], n: int) -> None:
    assert parse_order(";".join(names[:n])) == tuple(names[:n])


def test_the_two_orders_are_valid() -> None:
    assert len(parse_order(DEFAULT_ORDER)) == 9
    assert parse_order(BOOK_ORDER)[1] == "temperature"


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": -0.1}, "temperature must be 0 (greedy) to 1000000, got -0.1"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperature": "1"}, "temperature must be"),
        ({"top_k": 1.5}, "top_k must be a whole number from 0 (off)"),
        ({"top_k": True}, "top_k must be"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1 (off)"),
        ({"min_p": 1.1}, "min_p must be 0 (off) to 1"),
        ({"typical_p": 0}, "typical_p must be above 0"),
        ({"top_n_sigma": -1}, "top_n_sigma must be 0 (off)"),
        ({"xtc_probability": 2}, "xtc_probability must be"),
        ({"repeat_penalty": 0}, "repeat_penalty must be"),
        ({"repeat_last_n": -1}, "repeat_last_n must be"),
        ({"frequency_penalty": math.inf}, "frequency_penalty must be"),
        ({"dry_base": 0.9}, "dry_base must be 1 to 1000000"),
        ({"dry_sequence_breakers": "\n"}, "dry_sequence_breakers must be strings"),
        ({"dry_sequence_breakers": ["a", ""]}, "got '' at [1]"),
        ({"dry_sequence_breakers": ["ä" * 21]}, "1 to 40 bytes"),
        ({"dry_sequence_breakers": ["\ud800"]}, "UTF-8"),
        ({"mirostat": 3}, "mirostat must be 0 (off), 1 or 2, got 3"),
        ({"adaptive_decay": 1.0}, "adaptive_decay must be 0 to 0.99"),
        ({"logit_bias": [(1, 2.0), (1, 3.0)]}, "token 1 occurs twice"),
        ({"logit_bias": [(1, math.inf)]}, "-inf or -1000000 to 1000000"),
        ({"logit_bias": [1]}, "got 1 at [0]"),
        ({"logit_bias": 5}, "(token, bias) pairs"),
        ({"draw": "normal"}, "draw must be cdf or gumbel, got 'normal'"),
        ({"seed": 2**32 - 1}, "seed must be None or a whole number from 0 to 4294967294"),
        ({"samplers": 3}, "samplers must be names"),
        ({"reasoning_budget": -2}, "reasoning_budget must be -1 (no limit) to 2147483647 tokens"),
        ({"reasoning_budget": 2**31}, "reasoning_budget must be"),
        ({"reasoning_budget": 1.0}, "reasoning_budget must be"),
        ({"reasoning_start": ""}, "reasoning_start must be a string of at least one character"),
        ({"reasoning_end": 5}, "reasoning_end must be a string"),
        ({"reasoning_message": "a\0b"}, "reasoning_message must be a string in UTF-8 without NUL"),
        ({"reasoning_message": "\ud800"}, "reasoning_message must be"),
        # The order.
        (
            {"samplers": "top_k;nucleus"},
            f"expected names from {', '.join(SAMPLER_NAMES)}, got 'nucleus'",
        ),
        ({"samplers": "top_k;"}, "got ''"),
        ({"samplers": "top_k;top_p;top_k"}, "'top_k' occurs twice"),
        ({"samplers": "adaptive_p;temperature"}, "'temperature' cannot follow adaptive_p"),
        # Settings that would have no effect.
        (
            {"top_k": 5, "samplers": "temperature"},
            "top_k=5 needs the sampler 'top_k', got samplers='temperature'",
        ),
        ({"temperature": 0.7, "samplers": ""}, "temperature=0.7 needs the sampler 'temperature'"),
        ({"adaptive_target": 0.5, **SAMPLED}, "adaptive_target=0.5 needs the sampler 'adaptive_p'"),
        (
            {"mirostat": 1, "top_p": 0.5},
            "replaces all truncation samplers: it cannot be combined with top_p=0.5",
        ),
        ({"mirostat": 2, "draw": "gumbel"}, "mirostat=2 draws the token itself"),
        ({"mirostat": 2, "samplers": "infill"}, "cannot be combined with infill or dynatemp_range"),
    ],
)
def test_invalid_settings_are_rejected_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Sampling(**changes)
    assert words in str(error.value)


def test_the_numpy_chain_rejects_a_reasoning_budget() -> None:
    assert Chain(Sampling(reasoning_budget=-1), 4).samplers
    with pytest.raises(InvalidArgumentError, match="reasoning_budget=5 needs a stream of a model"):
        Chain(Sampling(reasoning_budget=5), 4)


def test_options_and_json_name_every_setting() -> None:
    params = Sampling(
        temperature=0.7, logit_bias=[(3, -math.inf), (4, 1.5)], dry_sequence_breakers=["\n", "é"],
        seed=7,
    )  # fmt: skip
    options = params.to_options()
    assert set(options) == {field.name for field in fields(params)}
    assert options["temperature"] == "0.7"
    assert options["disable_thinking"] == "0"
    assert Sampling(disable_thinking=True).to_options()["disable_thinking"] == "1"
    assert options["samplers"] == DEFAULT_ORDER
    assert options["draw"] == "cdf"
    assert json.loads(options["logit_bias"]) == [[3, "-inf"], [4, 1.5]]
    assert json.loads(options["dry_sequence_breakers"]) == ["\n", "é"]
    as_json = json.loads(params.to_json())
    assert as_json["seed"] == 7
    assert as_json["logit_bias"] == [[3, "-inf"], [4, 1.5]]
    assert "seed" not in Sampling().to_options()


def test_presets_match_the_book() -> None:
    table = {name: (p.temperature, p.top_k, p.top_p, p.min_p) for name, p in PRESETS.items()}
    assert table == {
        "greedy": (0.0, 0, 1.0, 0.0),
        "balanced": (0.7, 40, 0.95, 0.05),
        "creative": (1.0, 0, 0.9, 0.0),
        "very-creative": (1.2, 0, 0.95, 0.0),
        "code": (0.2, 40, 0.95, 0.1),
    }
    assert Sampling.preset("code", seed=3).seed == 3
    assert Sampling.preset("code", seed=3).top_k == 40
    with pytest.raises(
        InvalidArgumentError, match="greedy, balanced, creative, very-creative, code"
    ):
        Sampling.preset("wild")
    with pytest.raises(InvalidArgumentError, match="no field 'topk'; did you mean 'top_k'"):
        Sampling.preset("code", topk=3)


# ---- the chain ----------------------------------------------------------------------------------


@given(distinct_logits, st.sampled_from(["", "xtc"]))
def test_temperature_0_takes_the_most_likely_token_despite_truncation(
    logits: list[float], name: str
) -> None:
    changes = {"xtc_probability": 1.0} if name else {}
    chain = Chain(Sampling(typical_p=0.2, **changes), len(logits))
    assert chain.sample(logits) == int(np.argmax(logits))


def test_temperature_0_respects_bias_and_penalties() -> None:
    params = Sampling(logit_bias=((2, -math.inf),), repeat_penalty=2.0)
    chain = Chain(params, 3)
    assert [chain.sample([2.0, 1.5, 9.0]) for _ in range(2)] == [0, 1]
    chain.reset()
    assert chain.sample([2.0, 1.5, 9.0]) == 0


def test_a_seed_makes_a_chain_reproducible_and_reset_restarts_it() -> None:
    logits = np.zeros(500)
    params = Sampling(temperature=1.0, xtc_probability=0.5, xtc_threshold=0.0, seed=9)
    chains = Chain(params, 500), Chain(params, 500)
    first = [chains[0].sample(logits) for _ in range(5)]
    assert first == [chains[1].sample(logits) for _ in range(5)]
    chains[0].reset()
    assert first == [chains[0].sample(logits) for _ in range(5)]


@pytest.mark.parametrize("draw", ["cdf", "gumbel"])
def test_draws_among_allowed_tokens_follow_their_renormalised_softmax(
    draw: str,
) -> None:
    logits = np.random.default_rng(1).normal(size=50).astype(np.float32)
    allowed_ids = [4, 8, 15, 16, 23, 42]
    chain = Chain(Sampling(temperature=0.8, draw=draw, seed=5), 50)
    draws = [chain.sample(logits[allowed_ids], allowed_ids, position) for position in range(4000)]
    expected = np.zeros(50)
    expected[allowed_ids] = softmax64(logits[allowed_ids] / 0.8)
    assert_draws_follow(draws, expected)


def test_mirostat_and_adaptive_p_draw_the_token_themselves() -> None:
    for changes, name in (
        ({"mirostat": 1}, "Mirostat("),
        ({"mirostat": 2}, "MirostatV2("),
        ({"adaptive_target": 0.5, "samplers": "top_k;adaptive_p", "top_k": 3}, "AdaptiveP("),
    ):
        params = Sampling(temperature=1.0, seed=1, **changes)  # type: ignore[arg-type]
        chain = Chain(params, 5)
        assert name in chain.describe()
        assert chain.sample([1.0, 2.0, 3.0, 4.0, 5.0]) < 5


def test_infill_and_dry_require_their_vocabulary_arguments() -> None:
    infill = Sampling(samplers="infill", **SAMPLED)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="pass infill="):
        Chain(infill, 2)
    vocabulary = InfillVocabulary([b"a", b""], frozenset({1}), 1)
    assert Chain(infill, 2, infill=vocabulary).sample([1.0, 1.0]) == 1
    with pytest.raises(InvalidArgumentError, match="pass breakers="):
        Chain(Sampling(dry_multiplier=1.0), 2)


def test_a_bias_for_a_token_outside_the_vocabulary_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="has 3 tokens"):
        Chain(Sampling(logit_bias=((3, 1.0),)), 3)


def test_all_logits_banned_is_an_error() -> None:
    for changes in ({}, SAMPLED, {**SAMPLED, "draw": "gumbel"}):
        params = Sampling(logit_bias=((0, -math.inf),), **changes)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="nothing to choose from"):
            Chain(params, 1).sample([1.0])
