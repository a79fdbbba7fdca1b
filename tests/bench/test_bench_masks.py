"""`bench.masks`: all libraries compute the masks of the same places and agree about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.masking.constraints import Constraint, constraints
from bench.masking.measuring import MaskEffort, Places, agreement, measure
from bench.masking.node_cost import KINDS, node_times
from bench.masking.vocabularies import TokenBytes
from bench.methods import LLGUIDANCE, METHODS, OURS
from eliza_ffi._resources import default_model_path

pytestmark = pytest.mark.slow

SMALL = MaskEffort(rounds=1, cold_places=5, cold_rounds=1)


@pytest.fixture(scope="module")
def vocabulary() -> TokenBytes:
    return TokenBytes.from_file(Path(default_model_path()))


@pytest.fixture(scope="module")
def engines(vocabulary: TokenBytes, hooks_path: Path) -> dict[str, Any]:
    return {name: METHODS[name].masks(vocabulary, hooks_path) for name in (OURS, LLGUIDANCE)}


@pytest.mark.parametrize("constraint", constraints(), ids=lambda each: each.name)
def test_every_library_accepts_every_sample(
    vocabulary: TokenBytes, engines: dict[str, Any], constraint: Constraint
) -> None:
    places = Places(vocabulary, constraint, 5)
    spelled = [b"".join(vocabulary.texts[t] for t in walk).decode() for walk in places.walks]
    assert spelled == [*constraint.samples]
    for engine in engines.values():
        measured = measure(engine, constraint, places, SMALL)
        assert measured["first_text_us"] >= 1e3 * measured["compile_ms"] > 0
        for kind in ("warm", "step", "cold"):
            assert 0 < measured[kind]["p50_us"] <= measured[kind]["p99_us"]


def test_libraries_agree_about_names_and_numbers(
    vocabulary: TokenBytes, engines: dict[str, Any]
) -> None:
    for constraint in constraints()[:2]:
        places = Places(vocabulary, constraint, 40)
        assert agreement([*engines.values()], constraint, places) == [
            {"same": 1.0, "in_common": 1.0}
        ]


def test_the_recognizer_anything_visits_every_node(
    vocabulary: TokenBytes, engines: dict[str, Any]
) -> None:
    native = engines[OURS].vocabulary
    costs = node_times(KINDS, vocabulary, native, 2)
    assert costs["anything"]["visited"] == native.n_nodes - 1
    assert 0 < costs["inside a JSON string"]["visited"] < native.n_nodes - 1
    assert all(0.1 < cost["ns"] < 100 for cost in costs.values())
