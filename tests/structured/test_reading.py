"""Reading an answer while it is written, in time proportional to its length."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Annotated, Any

import pydantic
import pytest

from eliza_ffi.library.protocol import StreamStep
from eliza_ffi.session.reading import read_answer
from eliza_ffi.structured import FillResult, PartialField
from eliza_ffi.structured.shape import shape_of


class Item(pydantic.BaseModel):
    name: str
    sizes: list[int]


class Order(pydantic.BaseModel):
    items: list[Item]


CHECKED: list[str] = []


def check(name: str) -> str:
    CHECKED.append(name)
    return name


class Checked(pydantic.BaseModel):
    names: list[Annotated[str, pydantic.AfterValidator(check)]]


ANY_ORDER = {"type": "object", "properties": {"items": {"type": "array"}}}


def answer(n_items: int) -> str:
    return json.dumps({"items": [{"name": f"item {i}", "sizes": [i, 7]} for i in range(n_items)]})


def reading(given: Any, text: str, size: int = 4) -> Iterator[Any]:
    """Read an answer that a model writes in pieces."""

    def steps() -> Generator[StreamStep, None, None]:
        for at in range(0, len(text), size):
            yield StreamStep((1,), text[at : at + size], False)

    args = SimpleNamespace(constraint=SimpleNamespace(relaxed=()))
    told: Any = {"finish_reason": "end", "stats": None, "choices": {}, "args": args}
    writing: Any = SimpleNamespace(text=text, tokens=(1,), steps=steps, **told)
    shape = shape_of(given)
    return read_answer(writing, shape.value, shape.json_of)


def read(shape: Any, text: str) -> tuple[list[PartialField], Any]:
    *fields, result = reading(shape, text)
    assert isinstance(result, FillResult)
    return [each for each in fields if isinstance(each, PartialField)], result.value


def n_calls(work: Callable[[], Any]) -> int:
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def read_partials(shape: Any, text: str) -> None:
    fields, _ = read(shape, text)
    assert all(field.partial is not None for field in fields)


@pytest.mark.parametrize("shape", [Order, ANY_ORDER])
@pytest.mark.parametrize("work", [read, read_partials])
def test_reading_takes_time_proportional_to_the_length(
    shape: Any, work: Callable[[Any, str], Any]
) -> None:
    """This is true even if every partial answer is accessed."""
    few, many = answer(50), answer(200)
    work(shape, answer(1))  # fills the caches before the calls are counted
    assert n_calls(lambda: work(shape, many)) < 5 * n_calls(lambda: work(shape, few))


def test_each_part_is_validated_once_for_the_partial_answers() -> None:
    CHECKED.clear()
    fields, value = read(Checked, json.dumps({"names": [f"name {i}" for i in range(100)]}))
    assert [len(field.partial.names) for field in fields] == [*range(1, 101), 100]
    assert fields[-1].partial == value
    assert len(CHECKED) == 3 * 100  # as an item, as part of the list, and as part of the answer


def test_changing_a_partial_answer_does_not_change_another() -> None:
    fields, value = read(ANY_ORDER, answer(3))
    fields[0].partial["items"].clear()
    fields[3].value.append(5)
    assert fields[-1].partial == value == json.loads(answer(3))


def test_a_partial_answer_contains_only_valid_parts() -> None:
    class Short(pydantic.BaseModel):
        words: list[Annotated[str, pydantic.StringConstraints(max_length=3)]]
        size: int

    text = json.dumps({"words": ["one", "two", "three", "six"], "size": 1})
    fields = list(islice(reading(Short, text), 6))
    words = [field.partial.words for field in fields[:4]]
    assert words == [["one"], ["one", "two"], ["one", "two"], ["one", "two"]]
    assert fields[-1].partial.size == 1
    assert not hasattr(fields[-1].partial, "words")


def test_a_partial_answer_ends_at_its_field_even_if_read_later() -> None:
    fields, value = read(Order, answer(3))
    names = [each for each in fields if each.path[-1] == "name"]
    for i, each in enumerate(names):
        assert [item.name for item in each.partial.items] == [f"item {j}" for j in range(i + 1)]
        assert not hasattr(each.partial.items[i], "sizes")
    assert fields[-1].path == ("items",) and fields[-1].partial == value
    assert names[0].partial is names[0].partial


def test_a_field_survives_pickling_with_its_partial_answer() -> None:
    fields, _ = read(ANY_ORDER, answer(2))
    copied = pickle.loads(pickle.dumps(fields))
    assert copied == fields
    assert [each.partial for each in copied] == [each.partial for each in fields]
