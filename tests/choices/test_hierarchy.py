"""Tests of labels with levels: their groups, which are computed once."""

from __future__ import annotations

from eliza_ffi.choices.hierarchy import Hierarchy
from eliza_ffi.choices.label_set import as_label_set

LABELS = ["home > desk > lamp", "home > desk > chair", "garden > chair", "home", "garden > chairs"]


def test_labels_with_the_same_first_parts_are_a_group() -> None:
    hierarchy = Hierarchy(LABELS, " > ")
    assert hierarchy.depth == 3
    first, second = hierarchy.groups_at(1), hierarchy.groups_at(2)
    assert first.texts == ("home", "garden")
    assert first.of_label.tolist() == [0, 0, 1, 0, 1]
    assert second.texts == ("home > desk", "garden > chair", "home", "garden > chairs")
    assert second.of_label.tolist() == [0, 0, 1, 2, 3]
    assert hierarchy.groups_at(3).texts == tuple(LABELS)


def test_a_label_set_computes_its_groups_once() -> None:
    labels = as_label_set(LABELS)
    groups = labels.hierarchy(" > ").groups_at(1)
    assert labels.hierarchy(" > ").groups_at(1) is groups
    assert labels.hierarchy("e").groups_at(1).texts == ("hom", "gard")
