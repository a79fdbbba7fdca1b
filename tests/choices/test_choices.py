"""Label sets and the results of choices."""

from __future__ import annotations

import enum
import math
from typing import Any, Literal

import pytest

from eliza_ffi.choices import ChoiceResult, LabelSet, as_label_set
from eliza_ffi.errors import InvalidArgumentError


class Colour(enum.Enum):
    RED = "red"
    GREEN = 2


def generated() -> Any:
    yield from ("a", "b")


@pytest.mark.parametrize(
    ("choices", "values", "texts"),
    [
        (["a", "b"], ("a", "b"), ("a", "b")),
        (generated(), ("a", "b"), ("a", "b")),
        (Colour, (Colour.RED, Colour.GREEN), ("red", "GREEN")),
        (bool, (True, False), ("true", "false")),
        (Literal["x", "y"], ("x", "y"), ("x", "y")),
        (Literal[True, 3, Colour.GREEN], (True, 3, Colour.GREEN), ("true", "3", "GREEN")),
        (LabelSet([7], ["seven"]), (7,), ("seven",)),
    ],
    ids=["strings", "generator", "enum", "bool", "literal", "mixed literal", "set"],
)
def test_every_kind_of_label_set_is_accepted(
    choices: Any, values: tuple[Any, ...], texts: tuple[str, ...]
) -> None:
    found = as_label_set(choices)
    assert (found.values, found.texts) == (values, texts)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (None, "labels must be a list of strings, an enum class, .*, got None"),
        ("RESPOND", "labels must be a list of strings, .*, got 'RESPOND'"),
        (b"RESPOND", "labels must be a list of strings, .*, got bytes"),
        (7, "labels must be a list of strings, .*, got 7"),
        ([], "there is nothing to choose from"),
        ({}, "labels must be a list of strings, .*, got an empty dict; the model reads only"),
        ({"a": "first"}, "got a dict; .* write descriptions into the prompt, or use decide"),
        (["a", ""], "labels\\[1\\] must be a non-empty string"),
        (["a", 7], "labels\\[1\\] must be a non-empty string, got 7"),
        (["a", "a"], "labels\\[1\\] is 'a', the same as labels\\[0\\]"),
        (Literal[None], "a Literal must consist of strings, .*, got None"),
    ],
)
def test_invalid_label_sets_are_rejected(choices: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        as_label_set(choices)


def test_keys_are_the_values_or_the_labels_if_values_are_not_unique() -> None:
    """The labels are also the keys if a value is not hashable."""
    assert LabelSet([1, 0], ["yes", "no"]).keys == (1, 0)
    assert LabelSet([[1], [0]], ["yes", "no"]).keys == ("yes", "no")
    assert LabelSet([1, 1, 0], ["yes", "yep", "no"]).keys == ("yes", "yep", "no")


def choice(probabilities: dict[str, float] | None) -> ChoiceResult[str]:
    return ChoiceResult("a", 0, "a", math.log(0.5), (1,), 0, 0.1, probabilities)


def test_confidence_is_the_distance_of_the_highest_probability_from_chance() -> None:
    assert choice({"a": 1.0}).confidence == 1.0
    assert choice({"a": 0.1, "b": 0.9}).confidence == pytest.approx(0.8)
    assert choice({"a": 0.5, "b": 0.25, "c": 0.25}).confidence == pytest.approx(0.25)


def test_ranked_sorts_labels_by_probability() -> None:
    assert choice({"a": 0.2, "b": 0.7, "c": 0.1}).ranked() == [("b", 0.7), ("a", 0.2), ("c", 0.1)]


def test_missing_probabilities_are_an_error() -> None:
    for ask in (ChoiceResult.ranked, lambda made: made.confidence):
        with pytest.raises(InvalidArgumentError, match="call choose\\(\\) with probabilities=True"):
            ask(choice(None))
