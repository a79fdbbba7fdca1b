"""`bench.attention`: our attention, and llama.cpp's without flash attention."""

from __future__ import annotations

import pytest

from bench import attention
from bench.attention import Task, measure
from bench.parts.workload import Subject

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "task", [Task(8, reused=8), Task(8, streams=2, head_size=64), Task(8, type_k="q8_0")]
)
def test_a_row_compares_the_times_of_both_settings(
    monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    monkeypatch.setattr(attention, "SUBJECT", Subject("narrow", "llama-spm", n_layers=1))
    cell = measure(task, rounds=2)
    assert cell["off"] > 0.0 and cell["on"] > 0.0
    low, middle, high = cell["on_over_off"]
    assert 0.0 < low <= middle <= high
