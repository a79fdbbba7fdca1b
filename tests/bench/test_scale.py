"""`bench.scale`: the estimate of a row's time, and the measured costs."""

from __future__ import annotations

import pytest

from bench.scaling.estimate import Costs, row_seconds, workers_per_driver
from bench.scaling.measuring import driver_seconds, pass_costs, rows_here
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

COSTS = Costs(
    tokens={10: 1e-4, 110: 2e-4},
    cores=2,
    host_seconds=5e-4,
    host_cpu_seconds=1e-3,
    driver_seconds=1e-4,
    crowding={1: 1.0, 2: 1.5},
)


@pytest.mark.parametrize(
    ("tokens", "n_workers", "seconds"),
    [
        (10, 1, 10 * 1e-4 + 5e-4),
        (60, 1, 60 * 1.5e-4 + 5e-4),
        (1000, 1, 1000 * 2e-4 + 5e-4),
        (60, 2, (60 * 1.5e-4 + 1e-3) * 1.5),
    ],
)
def test_a_row_costs_its_tokens_and_the_work_outside_passes(
    tokens: float, n_workers: int, seconds: float
) -> None:
    assert row_seconds(COSTS, tokens, n_workers) == pytest.approx(seconds)


def test_a_driver_can_feed_workers_in_proportion_to_row_time() -> None:
    assert workers_per_driver(COSTS, 60) == pytest.approx(95.0)


def test_passes_and_rows_have_plausible_costs(tiny_model: Model) -> None:
    costs = pass_costs(tiny_model, 8)
    lengths = [each["row_tokens"] for each in costs]
    assert lengths == sorted(lengths)
    for each in costs:
        assert each["pass_tokens"] >= each["row_tokens"] * 0.9
        assert each["token_seconds"] > 0
    found = rows_here(tiny_model, 8, 8)
    assert found["seconds"] > 0
    assert 8 < found["tokens"] < 100
    assert driver_seconds(8, 64, tiny_model) > 0
