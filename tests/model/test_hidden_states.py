"""Hidden states, checked against embeddings, which llama.cpp computes in another context."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model
from eliza_ffi.errors import ContextFullError, InvalidArgumentError

TEXT = "The quick brown fox jumps over the lazy dog."


def n_layers_of(model: Model) -> int:
    return int(model.describe()["model"]["n_layer"])


def test_the_last_layer_is_that_of_embeddings(tiny_model: Model) -> None:
    found = tiny_model.hidden_states(TEXT)
    assert found.dtype == np.float32
    assert found.shape == (1, 1, tiny_model.describe()["model"]["n_embd"])
    row = found[0, 0] / np.linalg.norm(found[0, 0])
    assert row @ tiny_model.embed(TEXT, "last") > 0.999
    rows = tiny_model.hidden_states(TEXT, n_rows=len(tiny_model.prompt_tokens(TEXT)))[0]
    assert np.allclose(rows[-1], found[0, 0], atol=0.02)
    mean = rows.mean(0)
    assert mean / np.linalg.norm(mean) @ tiny_model.embed(TEXT) > 0.999


def test_means_over_tokens_are_those_of_their_rows(tiny_model: Model) -> None:
    n = len(tiny_model.prompt_tokens(TEXT))
    layers = [-1, 2, 1]
    rows = tiny_model.hidden_states(TEXT, layers, n_rows=n)
    whole = tiny_model.hidden_states(TEXT, layers, pooling="mean")
    assert whole.shape == (3, 1, rows.shape[2])
    np.testing.assert_allclose(whole[:, 0], rows.mean(axis=1), atol=0.02)
    ranges = [(0, 2), (3, 4), (2, n)]
    parts = tiny_model.hidden_states(TEXT, layers, pooling="mean", ranges=ranges)
    for i, (begin, end) in enumerate(ranges):
        np.testing.assert_allclose(parts[:, i], rows[:, begin:end].mean(axis=1), atol=0.02)


def test_layers_are_in_the_wanted_order(tiny_model: Model) -> None:
    n = n_layers_of(tiny_model)
    first, last = (tiny_model.hidden_states(TEXT, [layer])[0] for layer in (1, n))
    assert not np.allclose(first, last)
    found = tiny_model.hidden_states(TEXT, [-1, 1, n, -n])
    for row, expected in zip(found, (last, first, last, first), strict=True):
        assert np.allclose(row, expected, atol=0.02)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"layers": [0]}, r"layers[0] must be a layer from 1 to"),
        ({"layers": [99]}, r"layers[0] must be a layer from 1 to"),
        ({"layers": [1, -99]}, r"layers[1] must be a layer from 1 to"),
        ({"layers": []}, "layers: expected at least one layer, got none"),
        ({"n_rows": 500}, "n_rows: expected at most the prompt's"),
        ({"n_rows": 2, "pooling": "mean"}, "n_rows has no effect with pooling"),
        ({"pooling": "cls"}, "pooling must be one of mean, got 'cls'"),
        ({"ranges": [(0, 1)]}, 'ranges require pooling="mean"'),
        ({"pooling": "mean", "ranges": [(0, 99)]}, "ranges[0] must be a whole number from 0 to"),
        ({"pooling": "mean", "ranges": []}, "ranges: expected at least one range, got none"),
    ],
)
def test_wrong_arguments_are_named(
    tiny_model: Model, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(reason)):
        tiny_model.hidden_states(TEXT, **arguments)


def test_a_prompt_that_is_too_long_is_named(tiny_model: Model) -> None:
    with pytest.raises(ContextFullError, match="does not fit the context"):
        tiny_model.hidden_states("word " * 20_000)
