"""Requests that fit into the context one by one, but not together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from both_faces import result_of

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.elizaos import ActionSkeleton
from eliza_ffi.errors import ContextFullError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.structured import Lark

N_CTX = 256
# Well over half of the context.
WORDS = "the parcel did not come and nobody knows where it is " * 12
INPUTS = [f"{i} {WORDS}" for i in range(8)]
QUESTIONS = {"late": Predicate("Is it late?"), "team": Choice("Which team?", ["sales", "post"])}


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    with Model(library=library, n_ctx=N_CTX, n_slots=4, n_threads=1) as opened:
        assert len(opened.prompt_tokens(INPUTS[0])) > N_CTX // 2
        yield opened


@pytest.mark.parametrize("is_async", [False, True])
def test_requests_that_do_not_fit_together_wait(model: Model, is_async: bool) -> None:
    face = AsyncModel.of(model) if is_async else model

    decisions = asyncio.run(result_of(face.decide_many(INPUTS, QUESTIONS)))
    chosen = asyncio.run(result_of(face.choose_many(INPUTS, ["now", "later"])))
    texts = asyncio.run(result_of(face.generate_many(INPUTS, 4)))
    for given, decision, choice, text in zip(INPUTS, decisions, chosen, texts, strict=True):
        alone = model.decide(given, QUESTIONS)["late"].probability
        assert decision["late"].probability == pytest.approx(alone, abs=0.02)
        assert choice.value == model.choose(given, ["now", "later"]).value
        assert text.text == model.generate(given, 4).text


def test_an_input_that_never_fits_fails_in_its_place(model: Model) -> None:
    inputs = [INPUTS[0], WORDS * 4, INPUTS[1]]
    decisions = model.decide_many(inputs, QUESTIONS, return_exceptions=True)
    assert [isinstance(each, ContextFullError) for each in decisions] == [False, True, False]


def test_a_request_that_never_fits_fails(model: Model) -> None:
    with closing(model.binding.open(model.session.ctx, StreamConfig())):
        for request in (
            lambda: model.decide(WORDS * 4, QUESTIONS),
            lambda: model.choose(WORDS * 4, ["now", "later"]),
            lambda: model.generate(WORDS * 4, 2),
        ):
            with pytest.raises(ContextFullError):
                request()


# ---- Every method beside a stream that fills the context -----------------------------------------

SHORT = "nobody knows where the parcel is. "
ANSWER = WORDS[:520]  # fits after SHORT, but not while one of INPUTS is in the context
LONG_LABELS = [f"{first} {ANSWER} {last}" for first in ("yes", "no") for last in "ab"]
SKELETON = {
    "spans": [
        {"kind": "enum", "key": "first", "enumValues": ["yes", "no"]},
        {"kind": "literal", "value": ANSWER},
        {"kind": "enum", "key": "last", "enumValues": ["now", "later"]},
    ]
}
ONE_SPAN = {"spans": SKELETON["spans"][:1]}
GRAMMAR = Lark(f'start: ("yes" | "no") " {ANSWER}" ("now" | "later")')
PARAMETER = {"name": ANSWER, "required": True, "schema": {"enum": ["now", "later"]}}
ACTIONS = [{"name": "SEND", "parameters": [PARAMETER]}]

METHODS: dict[str, Callable[[Any], Any]] = {
    "fill": lambda m: m.fill(SHORT, SKELETON),
    "fill a schema": lambda m: m.fill(SHORT, GRAMMAR),
    "fill_many": lambda m: m.fill_many([SHORT], SKELETON),
    "fill_stream": lambda m: m.fill_stream(INPUTS[1], ONE_SPAN),
    "plan": lambda m: m.fill(SHORT, ActionSkeleton(ACTIONS)),
    "stream": lambda m: m.stream(INPUTS[1], 4),
    "choose": lambda m: m.choose(SHORT, LONG_LABELS),
    "save_prompt_cache": lambda m: m.save_prompt_cache("saved", INPUTS[1]),
    "end_of_turn": lambda m: m.end_of_turn(INPUTS[1], "<|im_end|>"),
}


def answer_of(method: str, face: Model | AsyncModel) -> Any:
    async def finished() -> Any:
        return await result_of(METHODS[method](face))

    found = asyncio.run(finished())
    if method == "stream":
        return "".join(found)
    last = found[-1] if isinstance(found, list) else found
    return getattr(last, "text", getattr(last, "probability", last))


@contextmanager
def full_context(model: Model) -> Iterator[None]:
    """Fill most of the context with a stream, which continues afterwards as if it were alone."""
    alone = model.generate(INPUTS[0], 5).text
    other = model.stream(INPUTS[0], 5)
    text = next(other)
    yield
    assert text + "".join(other) == alone


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gets_room(
    model: Model, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = answer_of(method, model)
    for face in (model, AsyncModel.of(model)):
        with full_context(model):
            assert answer_of(method, face) == pytest.approx(alone, abs=0.02)


def test_output_before_the_context_is_full_is_not_repeated(model: Model) -> None:
    received: list[Any] = []
    alone = model.choose(SHORT, LONG_LABELS, mode="greedy").text
    with full_context(model):
        model.choose(SHORT, LONG_LABELS, mode="greedy", on_text=received.append)
    assert "".join(received) == alone

    received.clear()
    with full_context(model):
        model.fill(SHORT, SKELETON, on_span=received.append)
    assert [span.key for span in received if span.key] == ["first", "last"]
