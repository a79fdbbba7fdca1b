"""Texts that end a generation, and how likely its tokens were."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi import AsyncModel, Model, Sampling
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import Library
from eliza_ffi.session.stop_texts import StopTexts

PROMPT = "message: good morning\naction: "
# Answered in a sentence.
ASKED = "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n"


def cut(text: str, stops: list[str]) -> str:
    """The definition: the text before the stop that is whole first."""
    for end in range(len(text) + 1):
        places = [text[:end].find(stop) for stop in stops if stop in text[:end]]
        if places:
            return text[: min(places)]
    return text


def through(pieces: list[str], stops: list[str]) -> str:
    """What comes of a text that comes in pieces."""
    filter_ = StopTexts(stops)
    told = ""
    for i, piece in enumerate(pieces):
        told += filter_.push(piece, i == len(pieces) - 1)
        if filter_.has_come:
            break
    return told


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_text_is_let_through_up_to_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    assert through(pieces, stops) == through(list(text), stops) == cut(text, stops)


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=3))
def test_nothing_is_held_back_that_cannot_begin_a_stop(text: str, stop: str) -> None:
    stops = StopTexts([stop])
    told = stops.push(text, False)
    if not stops.has_come:
        assert stop.startswith(text[len(told) :])


@pytest.fixture(scope="module")
def free_text(tiny_model: Model) -> str:
    text = tiny_model.generate(PROMPT, 40, temperature=1.5, seed=3).text
    assert len(text) > 20, "long enough to stop inside"
    return text


def test_a_generation_ends_where_a_stop_comes(tiny_model: Model, free_text: str) -> None:
    chunks: list[str] = []
    for begin in range(2, 16):
        stop = free_text[begin : begin + 3]
        chunks.clear()
        found = tiny_model.generate(
            PROMPT, 40, temperature=1.5, seed=3, stop=["never this", stop], on_text=chunks.append
        )
        assert found.text == free_text[: free_text.index(stop)]
        assert found.finish_reason == "stop"
        assert "".join(chunks) == found.text
        assert found.stats is not None, "what it took is known"
        streamed = tiny_model.stream(PROMPT, 40, temperature=1.5, seed=3, stop=stop)
        assert "".join(streamed) == found.text


def test_what_might_have_begun_a_stop_is_given_out_at_the_end(
    tiny_model: Model, free_text: str
) -> None:
    found = tiny_model.generate(PROMPT, 40, temperature=1.5, seed=3, stop=free_text[-2:] + "more")
    assert (found.text, found.finish_reason == "stop") == (free_text, False)


def test_stops_are_texts(tiny_model: Model) -> None:
    for bad in ("", ["a", ""], [1]):
        with pytest.raises(InvalidArgumentError, match="stop must be non-empty"):
            tiny_model.generate(PROMPT, 4, stop=bad)  # type: ignore[arg-type]
    for method in (tiny_model.choose, tiny_model.choose_many):
        with pytest.raises(TypeError, match="keyword.* 'stop'"):
            method([PROMPT], ["A", "B"], stop="x")  # type: ignore[operator]


def test_log_probabilities_are_told_of_every_token(tiny_model: Model) -> None:
    found = tiny_model.generate(ASKED, 12, logprobs=3)
    assert found.logprobs is not None
    assert tuple(entry.token for entry in found.logprobs) == found.tokens
    assert "".join(entry.text for entry in found.logprobs) == found.text
    for entry in found.logprobs:
        assert len(entry.top) == 3 and entry.top == tuple(
            sorted(entry.top, key=lambda other: -other.logprob)
        )
        assert entry.logprob == entry.top[0].logprob, "the most likely one is taken"
        assert sum(math.exp(other.logprob) for other in entry.top) <= 1 + 1e-5
    assert tiny_model.generate(ASKED, 12).logprobs is None


@pytest.mark.parametrize("vocab", ["llama-spm", "llama-bpe"])
def test_the_texts_of_tokens_join_to_the_text(
    vocab: str, library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path(vocab, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_threads=1, n_ctx=256) as model:
        hello = model.tokenize(" hello world")
        bias = [(token, 100.0) for token in hello]
        found = model.generate(
            "x:", 6, logprobs=0, sampling=Sampling(temperature=1.0, seed=1, logit_bias=bias)
        )
        assert found.logprobs is not None and " hello" in found.text
        assert "".join(entry.text for entry in found.logprobs) == found.text


def test_log_probabilities_come_from_before_the_sampling(tiny_model: Model) -> None:
    sampled = tiny_model.generate(PROMPT, 8, logprobs=0, temperature=5.0, seed=4)
    assert sampled.logprobs is not None
    prompt = tiny_model.tokenize(PROMPT, True, True)
    for i, entry in enumerate(sampled.logprobs):
        score = tiny_model.end_of_turn([*prompt, *sampled.tokens[:i]], entry.token)
        assert math.exp(entry.logprob) == pytest.approx(score.probability, abs=1e-3)
        assert entry.top == ()


def test_both_faces_and_batches_tell_them(tiny_model: Model) -> None:
    alone = tiny_model.generate(PROMPT, 6, logprobs=1)
    assert tiny_model.generate_many([PROMPT], 6, logprobs=1)[0].logprobs == alone.logprobs
    face = AsyncModel.of(tiny_model)
    assert asyncio.run(face.generate(PROMPT, 6, logprobs=1)).logprobs == alone.logprobs


def test_numbers_that_cannot_be_told_are_refused(tiny_model: Model) -> None:
    for bad in (-1, 5000, 10**12, 2.5):
        with pytest.raises(
            InvalidArgumentError, match="logprobs must be a whole number from 0 to 1024"
        ):
            tiny_model.generate(PROMPT, 2, logprobs=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keyword argument 'logprobs'"):
        tiny_model.choose(PROMPT, ["A", "B"], logprobs=1)  # type: ignore[call-overload]
