"""The comparison with other libraries, `make bench BENCH=quick`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.choosing.cells import Others, Workload, measure_cell
from bench.choosing.other_libraries import Logits, Peer
from bench.choosing.rounds import CHOOSING, ChoiceEffort
from bench.parts.workload import MODELS, action_names

pytestmark = pytest.mark.slow


def test_a_choice_is_measured_with_every_method(hooks_path: Path) -> None:
    others = Others((Peer("llguidance", None, "not needed here"),), Logits(hooks_path))
    workload = Workload(MODELS[0], action_names(3), ["Next action: "], n_threads=1)
    measured = measure_cell(workload, ChoiceEffort(repeat=1, budget=0.0), others)
    assert set(measured["methods"]) == set(CHOOSING)
    assert measured["choices"] == 3
    assert all(each["choice_ms"] > 0.0 for each in measured["methods"].values())
