"""The settings of sampling: order, presets and parameters."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ({"top_k": 1.5}, "top_k must be a whole number from 0 (off)"),
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
        ({"reasoning_start": ""}, "reasoning_start must be a string of at least one character"),
        ({"reasoning_message": "a\0b"}, "reasoning_message must be a string in UTF-8 without NUL"),
        # The order.
        ({"samplers": "top_k;nucleus"}, f"{', '.join(SAMPLER_NAMES)}, got 'nucleus'"),
        ({"samplers": "top_k;"}, "got ''"),
        ({"samplers": "top_k;top_p;top_k"}, "'top_k' occurs twice"),
        ({"samplers": "adaptive_p;temperature"}, "'temperature' cannot follow adaptive_p"),
        # Settings that would have no effect.
        ({"top_k": 5, "samplers": "temperature"}, "top_k=5 needs the sampler 'top_k'"),
        ({"temperature": 0.7, "samplers": ""}, "temperature=0.7 needs the sampler 'temperature'"),
        ({"adaptive_target": 0.5, **SAMPLED}, "adaptive_target=0.5 needs the sampler 'adaptive_p'"),
        ({"mirostat": 1, "top_p": 0.5}, "cannot be combined with top_p=0.5"),
        ({"mirostat": 2, "draw": "gumbel"}, "mirostat=2 draws the token itself"),
        ({"mirostat": 2, "samplers": "infill"}, "cannot be combined with infill or dynatemp_range"),
    ],
)
def test_invalid_settings_are_rejected_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Sampling(**changes)
    assert words in str(error.value)


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
