"""Messages as a prompt give the same results as the tokens of `chat_tokens`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from both_faces import result_of

from eliza_ffi import AsyncModel, Gbnf, Model
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


async def asked(model: Model | AsyncModel, prompt: Any, folder: Path) -> dict[str, Any]:
    texts = model.stream(prompt, 8)
    pieces = await result_of(texts)
    calls: dict[str, Any] = {
        "generate": model.generate(prompt, 8),
        "generate, sampled": model.generate(prompt, 8, temperature=1.5, seed=2),
        "generate, grammar": model.generate(prompt, 8, schema=Gbnf('root ::= "a" [b-z]+')),
        "generate_many": model.generate_many([prompt], 8),
        "choose": model.choose(prompt, LABELS),
        "choose, any": model.choose(prompt, LABELS, tokenization="any"),
        "choose_many": model.choose_many([prompt], LABELS),
        "save": model.save_prompt_cache(folder / "prompt.slot", prompt),
    }
    for name, shape in SHAPES.items():
        calls[f"fill, {name}"] = model.fill(prompt, shape)
        calls[f"fill_many, {name}"] = model.fill_many([prompt], shape)
        calls[f"fill_stream, {name}"] = (await result_of(model.fill_stream(prompt, shape)))[-1]
    found = {name: await result_of(call) for name, call in calls.items()}
    return {
        "stream": ("".join(pieces), texts.result.tokens, texts.result.prompt_tokens),
        "prompt_tokens": found["generate"].prompt_tokens,
        **{name: facts(each) for name, each in found.items()},
    }


def facts(found: Any) -> Any:
    """Return the tokens and the probability of a result, or of the only result in a list."""
    (found,) = found if isinstance(found, list) else [found]
    return found if isinstance(found, int) else (found.tokens, getattr(found, "logprob", None))


def test_every_method_tokenizes_messages_like_chat_tokens(
    model: Model, tokens: list[int], tmp_path: Path
) -> None:
    expected = asyncio.run(asked(model, tokens, tmp_path))
    assert expected["save"] == expected["prompt_tokens"] == len(tokens)
    assert asyncio.run(asked(model, MESSAGES, tmp_path)) == expected
    for prompt in (MESSAGES, tokens):
        assert asyncio.run(asked(AsyncModel.of(model), prompt, tmp_path)) == expected


@pytest.mark.parametrize(
    "messages",
    [tuple(MESSAGES), [MappingProxyType(each) for each in MESSAGES], tuple(map(dict, MESSAGES))],
    ids=["a tuple", "mappings", "dicts"],
)
def test_messages_can_be_any_sequence_of_mappings(
    model: Model, tokens: list[int], messages: Any
) -> None:
    assert model.generate(messages, 4).prompt_tokens == len(tokens)
