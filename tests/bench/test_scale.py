"""`bench.scale`: the measured costs."""

from __future__ import annotations

import pytest

from bench.scaling.measuring import driver_seconds, pass_costs, rows_here
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


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
