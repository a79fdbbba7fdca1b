"""Requests that fit the context one by one, and not all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.errors import ContextFullError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.runner.lifecycle import open_stream

N_CTX = 256
WORDS = "the parcel did not come and nobody knows where it is " * 12  # well over half of that
INPUTS = [f"{i} {WORDS}" for i in range(8)]
QUESTIONS = {"late": Predicate("Is it late?"), "team": Choice("Which team?", ["sales", "post"])}


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    with Model(library=library, n_ctx=N_CTX, n_slots=4, n_threads=1) as opened:
        assert len(opened.prompt_tokens(INPUTS[0])) > N_CTX // 2
        yield opened


def test_decisions_wait_for_one_another(model: Model) -> None:
    decisions = model.decide_many(INPUTS, QUESTIONS)
    alone = [model.decide(given, QUESTIONS) for given in INPUTS]
    for one, other in zip(decisions, alone, strict=True):
        assert one["late"].probability == pytest.approx(other["late"].probability, abs=0.02)


def test_so_do_choices_and_texts(model: Model) -> None:
    chosen = model.choose_many(INPUTS, ["now", "later"])
    assert [choice.value for choice in chosen] == [
        model.choose(given, ["now", "later"]).value for given in INPUTS
    ]
    texts = model.generate_many(INPUTS, 4)
    assert [text.text for text in texts] == [model.generate(given, 4).text for given in INPUTS]


def test_so_they_do_on_an_event_loop(model: Model) -> None:
    async def all_of_them() -> list[str]:
        chosen = await AsyncModel.of(model).choose_many(INPUTS, ["now", "later"])
        decisions = await AsyncModel.of(model).decide_many(INPUTS, QUESTIONS)
        assert len(decisions) == len(INPUTS)
        return [choice.value for choice in chosen]

    expected = [model.choose(given, ["now", "later"]).value for given in INPUTS]
    assert asyncio.run(all_of_them()) == expected


def test_what_does_not_fit_alone_fails_in_its_place(model: Model) -> None:
    inputs = [INPUTS[0], WORDS * 4, INPUTS[1]]
    decisions = model.decide_many(inputs, QUESTIONS, return_exceptions=True)
    assert [isinstance(each, ContextFullError) for each in decisions] == [False, True, False]


def test_who_does_not_wait_for_a_slot_does_not_wait_for_room(model: Model) -> None:
    with open_stream(model.binding, model.session.ctx, StreamConfig()) as stream:
        model.binding.prefill(stream, model.prompt_tokens(INPUTS[0]))
        with pytest.raises(ContextFullError):
            model.decide(INPUTS[1], QUESTIONS, wait=False)


def test_what_never_fits_fails_at_once_and_keeps_nobody_waiting(model: Model) -> None:
    before = model.session.turns.n_moves
    with open_stream(model.binding, model.session.ctx, StreamConfig()):
        for request in (
            lambda: model.decide(WORDS * 4, QUESTIONS),
            lambda: model.choose(WORDS * 4, ["now", "later"]),
            lambda: model.generate(WORDS * 4, 2),
        ):
            with pytest.raises(ContextFullError):
                request()
    assert model.session.turns.n_moves == before + 6  # each in and out, once


def test_what_fails_alone_is_not_tried_again(model: Model) -> None:
    before = model.session.turns.n_moves
    with pytest.raises(ContextFullError):
        model.decide(WORDS * 4, QUESTIONS)
    assert model.session.turns.n_moves == before + 2
