"""`bench.ranking`: the time to find the most probable of many labels."""

from __future__ import annotations

import pytest

from bench.parts.machine import machine_facts
from bench.ranking import (
    ALL,
    CHOOSE,
    LLGUIDANCE,
    NAMES,
    RANK,
    SETS,
    WAYS,
    Labels,
    RankEffort,
    markdown,
    measure_set,
    product_names,
    ways_of,
)
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

PROMPT = "Message: a warm blanket\nProduct: "


@pytest.mark.parametrize("labels", SETS, ids=lambda labels: labels.name)
def test_label_sets_have_the_stated_number_of_distinct_labels(labels: Labels) -> None:
    texts = labels.make(labels.n)
    assert len(texts) == len(set(texts)) == labels.n


def test_all_ways_return_labels_and_exact_ways_the_same(tiny_model: Model) -> None:
    labels = tiny_model.prepare_labels(product_names(27))
    ways = ways_of(tiny_model, labels)
    assert tuple(ways) == WAYS
    found = {name: way(PROMPT) for name, way in ways.items()}
    assert {each.label for each in found.values()} <= set(labels.texts)
    assert found[RANK].label == found[CHOOSE].label == found[ALL].label
    assert found[RANK].probability == pytest.approx(found[ALL].probability, rel=0.1)


def test_a_way_that_cannot_take_the_labels_gets_a_dash(tiny_model: Model) -> None:
    cell = measure_set(tiny_model, NAMES[0], RankEffort(rounds=2))
    del cell["ways"][LLGUIDANCE]
    low, middle, high = cell["all_over_rank"]
    assert 0 < low <= middle <= high
    assert 0 < cell["probability"] <= 1
    shown = markdown(
        {"machine": machine_facts(), "cells": [{"model": "m", "labels": "100 names", **cell}]}
    )
    rows = [line for line in shown.splitlines() if line.startswith("| m, 100 names |")]
    assert [row.count(" - |") for row in rows] == [1, 1]
