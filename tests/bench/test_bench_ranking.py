"""`bench.ranking`: the time to find the most probable of many labels."""

from __future__ import annotations

import pytest

from bench.ranking import ALL, CHOOSE, RANK, WAYS, product_names, ways_of
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

PROMPT = "Message: a warm blanket\nProduct: "


def test_all_ways_return_labels_and_exact_ways_the_same(tiny_model: Model) -> None:
    labels = tiny_model.prepare_labels(product_names(27))
    ways = ways_of(tiny_model, labels)
    assert tuple(ways) == WAYS
    found = {name: way(PROMPT) for name, way in ways.items()}
    assert {each.label for each in found.values()} <= set(labels.texts)
    assert found[RANK].label == found[CHOOSE].label == found[ALL].label
    assert found[RANK].probability == pytest.approx(found[ALL].probability, rel=0.1)
