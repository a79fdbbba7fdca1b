"""Answers for every kind of shape are valid, with masks and with skeletons."""

from __future__ import annotations

import copy
import enum
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import jsonschema
import pytest

from eliza_ffi import CacheOptions
from eliza_ffi.errors import (
    ContextFullError,
    ElizaError,
    FillError,
    InvalidArgumentError,
    NotSupportedError,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.sampling import Sampling
from eliza_ffi.structured import FillResult, Lark, PartialField, Regex
from eliza_ffi.structured.shape import shape_of

pydantic = pytest.importorskip("pydantic", reason="the extra schema is not installed")

Field = pydantic.Field
Short = Annotated[str, Field(max_length=6)]
Small = Annotated[int, Field(ge=-5, le=500)]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pet(pydantic.BaseModel):
    """An animal."""

    name: Short
    kind: Literal["cat", "dog", "fish"] = "cat"


class Person(pydantic.BaseModel):
    name: Short = Field(alias="fullName", description="first and last")
    age: Small
    pet: Pet | None
    pets: Annotated[list[Pet], Field(max_length=2)]
    color: Color


class Tree(pydantic.BaseModel):
    label: Literal["a", "b"]
    left: Tree | None = None


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    barks: bool


class Fish(pydantic.BaseModel):
    kind: Literal["fish"]
    fins: Small


class Cage(pydantic.BaseModel):
    inside: Annotated[Dog | Fish, Field(discriminator="kind")]


@dataclass
class Point:
    x: bool
    y: Literal[1, 2]


CLASSES: list[Any] = [Pet, Person, Cage, Point, Color, bool, Pet | None, Literal["a", 1, None]]
CLASSES += [Annotated[list[Color], Field(min_length=1, max_length=3)]]


def closed(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**schema, "additionalProperties": False}


SCHEMAS: dict[str, Any] = {
    "enum": {"enum": ["a", 2, None, [1, {"b": 2}]]},
    "const": {"const": {"a": [1]}},
    "text": {"type": "string", "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,3}$"},
    "date": {"type": "string", "format": "date"},
    "bounds": {"type": "integer", "minimum": 3, "maximum": 12345},
    "multiple": {"type": "integer", "minimum": 0, "maximum": 99, "multipleOf": 7},
    "nullable": {"type": ["boolean", "null"]},
    "object": {**closed(a={"type": "boolean"}, b={"enum": ["x", "y"]}), "required": ["a"]},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"enum": ["x", "yy"]}],
        "items": False,
        "minItems": 2,
    },
    "union": {"anyOf": [{"type": "boolean"}, {"enum": ["p", "q"]}, {"type": "null"}]},
    "one of": {"oneOf": [{"const": 1}, {"const": 2}]},
    "all of": {"allOf": [{"type": "integer"}, {"minimum": 1, "maximum": 9}]},
    "reference": {
        "$defs": {"kind": {"enum": ["k", "l"]}},
        **closed(one={"$ref": "#/$defs/kind"}, two={"$ref": "#/$defs/kind"}),
    },
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 0},
    "annotations": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A kind",
        "description": "of thing",
        "default": "m",
        "examples": ["m"],
        "enum": ["m", "n"],
    },
}

TEXTS: list[Any] = [
    (Regex("[a-c]{2,4}"), "[a-c]{2,4}"),
    (Regex("(yes|no), (red|green)"), "(yes|no), (red|green)"),
    (Regex("[0-9]{3}-[0-9]{4}"), "[0-9]{3}-[0-9]{4}"),
    (Lark('start: "say " ("hello" | /[a-d]{1,3}/)'), "say (hello|[a-d]{1,3})"),
]


@pytest.fixture(scope="module", params=["eliza-tiny", "llama-spm"])
def model(
    request: pytest.FixtureRequest, library: Library, random_model_path: Callable[..., Path]
) -> Iterator[Model]:
    """Return the embedded model, and a model with random weights."""
    name = request.param
    path = None if name == "eliza-tiny" else random_model_path(name, n_embd=64, n_layers=1)
    with Model(path, library=library, n_threads=1, seed=7) as opened:
        yield opened


@pytest.fixture
def masks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no plans, so that all answers are written with masks."""
    monkeypatch.setattr("eliza_ffi.structured.guidance.plan_of_text", lambda text: None)


def by_masks(model: Model, shape: Any, temperature: float) -> str:
    """Return an answer written with llguidance's masks alone."""
    shape = shape_of(shape)
    masks = copy.copy(shape.masks(model.session.guidance()))
    masks.plan = None
    result = model.generate("Hello", 500, schema=masks, temperature=temperature)
    assert result.finish_reason == "end", result
    return result.text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shape", CLASSES, ids=repr)
def test_answers_are_valid_values_of_their_class(
    model: Model, shape: Any, temperature: float
) -> None:
    adapter = pydantic.TypeAdapter(shape)
    result = model.fill("Hello", shape, temperature=temperature)
    assert result.value == adapter.validate_json(result.text)
    assert result.relaxed == ()
    assert result.complete
    adapter.validate_json(by_masks(model, shape, temperature))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_are_valid_against_their_schema(
    model: Model, name: str, temperature: float
) -> None:
    schema = SCHEMAS[name]
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    result = model.fill("Hello", schema, temperature=temperature)
    validator.validate(result.value)
    assert result.value == json.loads(result.text)
    validator.validate(json.loads(by_masks(model, schema, temperature)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("shape", "pattern"), TEXTS, ids=str)
def test_answers_match_their_expression_or_grammar(
    model: Model, shape: Any, pattern: str, temperature: float
) -> None:
    result = model.fill("Hello", shape, temperature=temperature)
    assert re.fullmatch(pattern, result.value)
    assert result.value == result.text
    assert re.fullmatch(pattern, by_masks(model, shape, temperature))


def test_each_finished_field_is_reported_with_the_partial_object(model: Model) -> None:
    steps = list(model.fill_stream("Hello", Person))
    result = steps.pop()
    assert isinstance(result, FillResult)
    assert all(isinstance(each, PartialField) for each in steps)
    top = [each for each in steps if isinstance(each, PartialField) and len(each.path) == 1]
    assert [each.path[0] for each in top] == ["fullName", "age", "pet", "pets", "color"]
    fields = list(Person.model_fields)
    for i, each in enumerate(top):
        assert isinstance(each.partial, Person)
        assert each.partial.model_fields_set == set(fields[: i + 1])
        for name in fields[: i + 1]:
            assert getattr(each.partial, name) == getattr(result.value, name)
        for name in fields[i + 1 :]:
            assert not hasattr(each.partial, name)
    assert top[-1].partial == result.value


def test_fields_are_reported_before_the_answer_is_complete(
    tiny_model: Model, masks_only: None
) -> None:
    steps = tiny_model.fill_stream("Hello", Tree, temperature=1.0)
    first = next(steps)
    assert isinstance(first, PartialField)
    assert first.path == ("label",)
    assert first.partial.model_fields_set == {"label"}
    assert not hasattr(first.partial, "left")
    steps.close()  # type: ignore[attr-defined]
    assert tiny_model.fill("Hello", bool, cache=CacheOptions(slot=0)).complete


def test_a_partial_object_has_the_fields_whose_names_in_json_differ(tiny_model: Model) -> None:
    class Named(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        first: bool = Field(validation_alias=pydantic.AliasChoices("One", "one"))
        second: bool = Field(
            validation_alias=pydantic.AliasChoices(pydantic.AliasPath("a", 0), "3")
        )

    class ByName(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(validate_by_name=True, validate_by_alias=False)
        first: bool = Field(alias="One")

    for each in (Named, ByName):
        *_, last, result = tiny_model.fill_stream("x", each)
        assert last.partial == result.value


def test_fields_are_passed_to_the_callback(tiny_model: Model) -> None:
    reported: list[PartialField] = []
    tiny_model.fill("Hello", Pet, on_span=reported.append)
    assert reported[0].path == ("name",)


def test_text_can_be_generated_and_streamed_with_a_shape(tiny_model: Model) -> None:
    whole = tiny_model.generate("Hello", schema=Pet)
    assert Pet.model_validate_json(whole.text)
    assert "".join(tiny_model.stream("Hello", schema=Pet)) == whole.text
    assert re.fullmatch("[a-f]{3}", tiny_model.generate("Hello", schema=Regex("[a-f]{3}")).text)
    assert tiny_model.generate("Hello", schema=Lark('start: "abc"')).text == "abc"
    (many,) = tiny_model.generate_many(["Hello"], schema={"enum": ["a", "b"]})
    assert many.text in ('"a"', '"b"')


ENDLESS = Lark("start: /[a-z ]+/ END\nEND: /[^a-z ]{900}/")


def test_a_truncated_answer_is_an_error_with_the_partial_answer(tiny_model: Model) -> None:
    with pytest.raises(FillError, match='after 12 tokens: .* or pass on_limit="close"$'):
        tiny_model.fill("Hello", ENDLESS, max_tokens=12)
    unclosable = 'after 12 tokens, and on_limit="close" found no short ending: raise max_tokens'
    with pytest.raises(FillError, match=unclosable) as cut:
        tiny_model.fill("Hello", ENDLESS, max_tokens=12, on_limit="close")
    assert len(cut.value.partial.tokens) == 12
    assert not cut.value.partial.complete


def test_a_full_context_is_an_error_with_the_partial_answer(library: Library) -> None:
    with Model(library=library, n_ctx=256, n_threads=1) as model:
        with pytest.raises(FillError, match="context is full") as full:
            model.fill("Hello", ENDLESS, max_tokens=0)
        assert isinstance(full.value.__cause__, ContextFullError)
        assert full.value.partial.text


def test_values_that_are_not_shapes_are_rejected(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot create a JSON Schema for"):
        tiny_model.fill("x", type("Lock", (), {}))
    with pytest.raises(InvalidArgumentError, match="schema must be a JSON Schema .* got 'text'"):
        tiny_model.generate("x", schema="text")
    with pytest.raises(InvalidArgumentError, match="sampler_plan is for skeletons"):
        tiny_model.fill("x", Lark('start: "a"'), sampler_plan={"x": 1})
    for shape in (Pet, {"spans": [{"kind": "boolean"}]}):
        with pytest.raises(InvalidArgumentError, match="on_limit must be .*, got 'stop'"):
            tiny_model.fill("x", shape, on_limit="stop")  # type: ignore[call-overload]


def test_without_pydantic_the_error_names_the_extra(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Mock(side_effect=ImportError("pydantic"))
    monkeypatch.setattr("eliza_ffi.structured.shape.importlib.import_module", missing)

    @dataclass
    class Unseen:
        x: bool

    with pytest.raises(NotSupportedError, match=r"Unseen: .* pip install 'eliza-ffi\[schema\]'"):
        tiny_model.fill("x", Unseen)


def test_closing_the_model_ends_a_running_fill(library: Library) -> None:
    model = Model(library=library, n_threads=1)
    with ThreadPoolExecutor(1) as threads:
        filling = threads.submit(list, model.fill_stream("Hello", ENDLESS))
        while not model.session.turns.n_running:
            time.sleep(0.001)
        model.close()
        assert isinstance(filling.exception(timeout=60), ElizaError)


def test_threads_can_fill_the_same_shape_concurrently(tiny_model: Model, masks_only: None) -> None:
    expected = tiny_model.fill("Hello", Person).value
    with ThreadPoolExecutor(12) as threads:
        found = threads.map(lambda _: tiny_model.fill("Hello", Person).value, range(12))
        assert list(found) == [expected] * 12


@pytest.mark.parametrize(
    "shape",
    [
        {"enum": [f"name {i}" for i in range(30)]},
        closed(a={"type": "string", "maxLength": 20}),
        {"spans": [{"kind": "free-string", "rule": "r"}], "grammar": "r ::= [a-c]{3,9}"},
    ],
    ids=["closed", "open", "skeleton"],
)
def test_all_sampling_settings_apply(tiny_model: Model, shape: dict[str, Any]) -> None:
    def text(**settings: Any) -> str:
        return tiny_model.fill("x", shape, **settings).text

    named: dict[str, Any] = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 3}
    assert text(sampling=Sampling(**named)) == text(**named)
    only_the_best = Sampling(temperature=3.0, min_p=1.0, seed=5)
    assert text(sampling=only_the_best) == text(temperature=3.0, min_p=1.0, seed=5) == text()
    assert len({text(sampling=Sampling(temperature=3.0, seed=n)) for n in range(9)}) > 1
    with pytest.raises(InvalidArgumentError, match="temperature is given twice"):
        text(temperature=0.5, sampling=only_the_best)
