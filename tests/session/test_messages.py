"""Messages as a prompt give the same results as the tokens of `chat_tokens`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from eliza_ffi import AsyncModel, CacheOptions, Gbnf, Model
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import Library

MESSAGES = [
    {"role": "system", "content": "You route mails."},
    {"role": "user", "content": "My invoice is wrong. <|im_end|>"},
]
LABELS = ["billing", "sales"]
SKELETON = {"spans": [{"kind": "enum", "key": "team", "enumValues": LABELS}]}
SCHEMA = {"type": "string", "maxLength": 8}
SHAPES: dict[str, dict[str, Any]] = {"a skeleton": SKELETON, "a schema": SCHEMA}


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    """Return a model with one slot and one thread.

    With several slots or threads, rounding may differ and change a sampled token.
    """
    with Model(library=library, n_ctx=512, n_slots=1, n_threads=1) as model:
        yield model


@pytest.fixture
def tokens(model: Model) -> list[int]:
    tokens = model.chat_tokens(MESSAGES)
    model.generate(tokens, 1)  # decoding a prompt again may round differently
    return tokens


def asked(model: Model, prompt: Any, folder: Path) -> dict[str, Any]:
    """Return the results of all methods for a prompt."""
    stream = model.stream(prompt, 8)
    pieces = list(stream)
    (text,) = model.generate_many([prompt], 8)
    (choice,) = model.choose_many([prompt], LABELS)
    found: dict[str, Any] = {
        "generate": model.generate(prompt, 8).tokens,
        "generate, sampled": model.generate(prompt, 8, temperature=1.5, seed=2).tokens,
        "generate, grammar": model.generate(prompt, 8, shape=Gbnf('root ::= "a" [b-z]+')).tokens,
        "prompt_tokens": model.generate(prompt, 1).prompt_tokens,
        "stream": ("".join(pieces), stream.result.tokens, stream.result.prompt_tokens),
        "generate_many": text.tokens,
        "choose": model.choose(prompt, LABELS).tokens,
        "choose, any": model.choose(prompt, LABELS, tokenization="any").logprob,
        "choose_many": choice.tokens,
        "save": model.save(folder / "prompt.slot", prompt),
    }
    for name, shape in SHAPES.items():
        found[f"fill, {name}"] = model.fill(prompt, shape).tokens
        found[f"fill_stream, {name}"] = [*model.fill_stream(prompt, shape)][-1].tokens
        found[f"fill_many, {name}"] = model.fill_many([prompt], shape)[0].tokens
    return found


async def asked_async(model: AsyncModel, prompt: Any, folder: Path) -> dict[str, Any]:
    """Return the same as :func:`asked`, with the asynchronous methods."""
    stream = model.stream(prompt, 8)
    pieces = [piece async for piece in stream]
    (text,) = await model.generate_many([prompt], 8)
    (choice,) = await model.choose_many([prompt], LABELS)
    found: dict[str, Any] = {
        "generate": (await model.generate(prompt, 8)).tokens,
        "generate, sampled": (await model.generate(prompt, 8, temperature=1.5, seed=2)).tokens,
        "generate, grammar": (
            await model.generate(prompt, 8, shape=Gbnf('root ::= "a" [b-z]+'))
        ).tokens,
        "prompt_tokens": (await model.generate(prompt, 1)).prompt_tokens,
        "stream": ("".join(pieces), stream.result.tokens, stream.result.prompt_tokens),
        "generate_many": text.tokens,
        "choose": (await model.choose(prompt, LABELS)).tokens,
        "choose, any": (await model.choose(prompt, LABELS, tokenization="any")).logprob,
        "choose_many": choice.tokens,
        "save": await model.save(folder / "prompt.slot", prompt),
    }
    for name, shape in SHAPES.items():
        found[f"fill, {name}"] = (await model.fill(prompt, shape)).tokens
        steps = [step async for step in model.fill_stream(prompt, shape)]
        found[f"fill_stream, {name}"] = steps[-1].tokens
        found[f"fill_many, {name}"] = (await model.fill_many([prompt], shape))[0].tokens
    return found


def test_every_method_tokenizes_messages_like_chat_tokens(
    model: Model, tokens: list[int], tmp_path: Path
) -> None:
    expected = asked(model, tokens, tmp_path)
    assert expected["save"] == expected["prompt_tokens"] == len(tokens)
    assert asked(model, MESSAGES, tmp_path) == expected
    assert asyncio.run(asked_async(AsyncModel.of(model), MESSAGES, tmp_path)) == expected
    assert asyncio.run(asked_async(AsyncModel.of(model), tokens, tmp_path)) == expected


@pytest.mark.parametrize(
    "messages",
    [tuple(MESSAGES), [MappingProxyType(each) for each in MESSAGES], tuple(map(dict, MESSAGES))],
    ids=["a tuple", "mappings", "dicts"],
)
def test_messages_can_be_any_sequence_of_mappings(
    model: Model, tokens: list[int], messages: Any
) -> None:
    assert model.generate(messages, 4).prompt_tokens == len(tokens)


def test_one_list_can_mix_all_kinds_of_prompts(model: Model, tokens: list[int]) -> None:
    text = "My invoice is wrong. Team: "
    prompts = [MESSAGES, text, tokens, MESSAGES[1:]]
    found = model.choose_many(prompts, LABELS, cache=CacheOptions())
    for prompt, one in zip(prompts, found, strict=True):
        assert one.value == model.choose(prompt, LABELS).value


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (MESSAGES[0], "got a dict; a conversation is a list of messages"),
        (["a", "b"], "use the method whose name ends in _many"),
        ([MESSAGES[0], "a"], "message 1 must be a mapping, got 'a'"),
        ([{"content": "a"}], "role"),
        ([], "the prompt is empty"),
    ],
)
def test_malformed_conversations_are_rejected(model: Model, prompt: Any, said: str) -> None:
    for call in (
        lambda: model.generate(prompt, 1),
        lambda: model.stream(prompt, 1),
        lambda: model.choose(prompt, LABELS),
        lambda: model.fill(prompt, SKELETON),
        lambda: model.save("never.slot", prompt),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            call()
