"""Generated text in pieces, and the result of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from eliza_ffi import (
    AsyncModel,
    AsyncTextStream,
    GenerationResult,
    Model,
    Regex,
    Sampling,
    TextStream,
)
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.library import Library

PROMPT = "The weather is "

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.5, "seed": 3},
    "all settings": {"sampling": Sampling(temperature=1.0, seed=5, repeat_penalty=1.2)},
    "stopped": {"temperature": 1.5, "seed": 3, "stop": ["e"]},
    "with log-probabilities": {"logprobs": 2},
    "with a schema": {"schema": Regex("[a-f]{2,9}")},
}


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    """Return a model with one slot and one thread.

    With several slots or threads, rounding may differ and change a sampled token.
    """
    with Model(library=library, n_ctx=512, n_slots=1, n_threads=1) as model:
        yield model


@pytest.fixture(autouse=True)
def the_prompt_is_in_the_cache(model: Model) -> None:
    """Put the prompt into the cache, because decoding it again may round differently."""
    model.generate(PROMPT, 1)


def facts(result: GenerationResult) -> tuple[Any, ...]:
    """Return the fields that do not depend on the cache or the clock."""
    tokens = None if result.logprobs is None else [each.token for each in result.logprobs]
    return result.text, result.tokens, result.finish_reason, result.prompt_tokens, tokens


async def text_of(stream: TextStream | AsyncTextStream) -> str:
    is_async = isinstance(stream, AsyncTextStream)
    return "".join([piece async for piece in stream] if is_async else list(stream))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stream_has_the_same_result_as_generate(model: Model, name: str) -> None:
    expected = model.generate(PROMPT, 20, **SETTINGS[name])
    for face, kind in ((model, TextStream), (AsyncModel.of(model), AsyncTextStream)):
        stream = face.stream(PROMPT, 20, **SETTINGS[name])
        assert isinstance(stream, kind)
        assert asyncio.run(text_of(stream)) == expected.text
        assert facts(stream.result) == facts(expected)
        assert stream.result.stats is not None and expected.stats is not None
        assert stream.result.stats.generated_tokens == expected.stats.generated_tokens


def has_no_result(stream: TextStream | AsyncTextStream) -> bool:
    with pytest.raises(InvalidArgumentError, match="no result yet: read it to its end first"):
        _ = stream.result
    return True


def test_a_stream_has_no_result_before_its_end(model: Model) -> None:
    stream = model.stream(PROMPT, 20)
    assert has_no_result(stream) and next(stream) and has_no_result(stream)
    stream.close()
    assert has_no_result(stream) and list(stream) == []

    async def story() -> None:
        stream = AsyncModel.of(model).stream(PROMPT, 20)
        assert has_no_result(stream) and await anext(stream) and has_no_result(stream)
        await stream.aclose()
        assert has_no_result(stream) and [piece async for piece in stream] == []

    asyncio.run(story())


def test_a_stream_that_has_ended_stays_ended(model: Model) -> None:
    stream = model.stream(PROMPT, 5)
    list(stream)
    assert model.session.turns.n_running == 0  # its slot is free
    result = stream.result
    assert list(stream) == []
    assert stream.result is result
    stream.close()
    assert stream.result is result


def test_leaving_a_stream_in_a_with_statement_frees_its_slot(model: Model) -> None:
    with model.stream(PROMPT, 20) as stream:
        next(stream)
        assert model.session.turns.n_running == 1
    assert model.session.turns.n_running == 0

    async def story() -> None:
        async with AsyncModel.of(model).stream(PROMPT, 20) as stream:
            await anext(stream)
            assert model.session.turns.n_running == 1
        assert model.session.turns.n_running == 0

    asyncio.run(story())


def test_a_failed_stream_has_no_result(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = model.stream(PROMPT, 20)
    next(stream)

    def fail(*_: Any, **__: Any) -> Any:
        raise ElizaError("no step today")

    monkeypatch.setattr(model.binding, "next", fail)
    with pytest.raises(ElizaError, match="no step today"):
        list(stream)
    assert has_no_result(stream)
    assert model.session.turns.n_running == 0
