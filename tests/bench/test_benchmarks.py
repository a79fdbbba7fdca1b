"""The comparison with other libraries, `make bench BENCH=quick`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.choosing.cells import CHOOSING, ChoiceEffort, Others, measure_cell
from bench.choosing.other_libraries import Logits, Peer
from bench.parts.workload import MODELS, action_names

pytestmark = pytest.mark.slow


def test_a_choice_is_measured_with_every_method(hooks_path: Path) -> None:
    others = Others((Peer.find("llguidance"),), Logits(hooks_path))
    effort = ChoiceEffort(repeat=1, budget=0.0)
    measured = measure_cell(MODELS[0], action_names(3), ["Next action: "], effort, others)
    assert measured["problems"] == {}
    assert set(measured["methods"]) == {*CHOOSING, "llguidance"}
    assert measured["choices"] == 3
    assert all(each["choice_ms"] > 0.0 for each in measured["methods"].values())
