"""`bench.batches`: many prompts with one call, compared with a loop."""

from __future__ import annotations

import pytest

from bench.batches import (
    OWN,
    SHARED,
    TEXTS,
    ways_of,
)
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", [OWN, SHARED, TEXTS])
def test_all_ways_return_the_same_answers(tiny_model: Model, task: str) -> None:
    prompts = [tiny_model.prompt_tokens(f"message {i}: ") for i in range(3)]
    with ways_of(tiny_model, task, n_tokens=2) as ways:
        answers = [way(prompts) for way in ways.values()]
    assert answers == [answers[0]] * 3
    assert len(answers[0]) == 3
