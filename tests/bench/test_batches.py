"""The benchmark of many prompts beside a loop over them, on inputs that take no time."""

from __future__ import annotations

import pytest

from bench import batches as bench_batches
from bench.batches import (
    GATHER,
    LOOP,
    MANY,
    OWN,
    SHARED,
    TEXTS,
    BatchEffort,
    measure_task,
)
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", [OWN, SHARED, TEXTS])
def test_every_way_answers_every_prompt(tiny_model: Model, task: str) -> None:
    with bench_batches.ways_of(tiny_model, task, n_tokens=2) as ways:
        prompts = [tiny_model.prompt_tokens(f"message {i}: ") for i in range(3)]
        answers = [way(prompts) for way in ways.values()]
    assert answers == [answers[0]] * 3
    assert len(answers[0]) == 3


def test_a_way_is_compared_with_the_loop_of_its_round(tiny_model: Model) -> None:
    found = measure_task(tiny_model, OWN, BatchEffort(prompts=2, tokens=2, rounds=2), settling=0.0)
    assert list(found) == [LOOP, MANY, GATHER]
    assert found[LOOP]["times_the_loop"] == [1.0, 1.0, 1.0]
    low, middle, high = found[MANY]["times_the_loop"]
    assert 0 < low <= middle <= high
