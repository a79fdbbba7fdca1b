"""Every class gets valid values, also if pydantic's own JSON Schema hides its limits."""

from __future__ import annotations

import datetime
import random
import uuid
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import UUID4, AwareDatetime, BaseModel, Field, NaiveDatetime, TypeAdapter
from random_answers import random_answer

from eliza_ffi import Model
from eliza_ffi.structured.shape import shape_of


class Color(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    size: Literal["small", "large"]


class Shelter(BaseModel):
    animals: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(max_length=2)
    colors: set[Color]


CLASSES: dict[str, Any] = {
    "a set of labels": set[Literal["a", "b", "ab"]],
    "a set of an enum": frozenset[Color],
    "a set of booleans": set[bool],
    "an optional set": set[Color] | None,
    "a map with an enum": dict[Color, bool],
    "a map with labels": dict[Literal["a", "b"], Literal["x", "y"]],
    "a map of maps": dict[Color, dict[Color, Cat]],
    "tagged classes": Annotated[Cat | Dog, Field(discriminator="kind")],
    "classes in classes": Shelter,
    "a time without a zone": NaiveDatetime,
    "a time with a zone": AwareDatetime,
    "a time of any kind": datetime.datetime,
    "a time of the day": datetime.time,
    "a date": datetime.date,
    "digits and places": Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
    "digits": Annotated[Decimal, Field(max_digits=3)],
    "places": Annotated[Decimal, Field(decimal_places=1, ge=0, lt=10)],
    "as many places as digits": Annotated[Decimal, Field(max_digits=2, decimal_places=2)],
    "any decimal": Decimal,
    "an id of a version": UUID4,
}


@pytest.mark.parametrize("name", CLASSES)
def test_random_answers_that_the_masks_allow_are_valid(tiny_model: Model, name: str) -> None:
    masks = shape_of(CLASSES[name]).masks(tiny_model.session.guidance())
    texts = tiny_model.vocabulary().texts
    for seed in range(20):
        answer = random_answer(masks, texts, random.Random(seed), 80)
        assert answer is not None
        TypeAdapter(CLASSES[name]).validate_json(answer)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_a_model_writes_valid_values(tiny_model: Model, name: str, temperature: float) -> None:
    result = tiny_model.fill("x", CLASSES[name], temperature=temperature, seed=1)
    assert result.complete


def test_a_set_has_each_value_once(tiny_model: Model) -> None:
    for seed in range(8):
        result = tiny_model.fill(
            'x ["a","a","a","a"', {**UNIQUE, "minItems": 3}, temperature=5.0, seed=seed
        )
        assert len(set(result.value)) == len(result.value) >= 3


UNIQUE = {"type": "array", "items": {"enum": ["a", "b", "ab", 1]}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (NaiveDatetime, datetime.datetime(2024, 2, 28, 23, 59, 59, 5)),
        (datetime.date, datetime.date(2024, 2, 29)),
        (datetime.date, datetime.date(2000, 2, 29)),
        (Annotated[Decimal, Field(max_digits=5, decimal_places=2)], Decimal("-999.99")),
        (Annotated[Decimal, Field(max_digits=3)], Decimal("0.25")),
        (UUID4, uuid.UUID("0b1c2d3e-4f50-4a6b-8c7d-8e9fa0b1c2d3")),
        (dict[Color, bool], {Color.GREEN: True}),
    ],
)
def test_values_of_the_class_are_allowed(tiny_model: Model, annotation: Any, value: Any) -> None:
    masks = shape_of(annotation).masks(tiny_model.session.guidance())
    text = TypeAdapter(annotation).dump_json(value).decode()
    number = text.strip('"') if isinstance(value, Decimal) else text
    source = masks.start()
    source.accept_all(masks.tokens_of(number))
    assert source.may_end
