"""Stop strings, and log-probabilities of generated tokens."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi import AsyncModel, Model, Sampling, Speculation
from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import Library
from eliza_ffi.session.generation import StopTexts
from eliza_ffi.structured import Regex

PROMPT = "message: good morning\naction: "
# The model answers this question with a sentence.
QUESTION = "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n"


def cut(text: str, stops: list[str]) -> str:
    """Return the text before the stop string that ends first: the definition of `stop`."""
    for end in range(len(text) + 1):
        places = [text[:end].find(stop) for stop in stops if stop in text[:end]]
        if places:
            return text[: min(places)]
    return text


def through(pieces: list[str], stops: list[str]) -> str:
    filter_ = StopTexts(stops)
    passed = ""
    for i, piece in enumerate(pieces):
        passed += filter_.push(piece, i == len(pieces) - 1)
        if filter_.has_come:
            break
    return passed


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_is_passed_on_up_to_the_first_stop_string(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    assert through(pieces, stops) == through(list(text), stops) == cut(text, stops)


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=3))
def test_only_possible_beginnings_of_a_stop_are_held_back(text: str, stop: str) -> None:
    stops = StopTexts([stop])
    passed = stops.push(text, False)
    if not stops.has_come:
        assert stop.startswith(text[len(passed) :])


@pytest.fixture(scope="module")
def one_slot(library: Library) -> Iterator[Model]:
    """Return a model that repeats a text exactly, because its cache never holds another text."""
    with Model(default_model_path(), library=library, n_threads=1, n_slots=1) as model:
        yield model


@pytest.fixture(scope="module")
def seed(one_slot: Model) -> int:
    """Return a seed for a text that is long enough to stop inside."""
    return next(
        seed
        for seed in range(50)
        if len(one_slot.generate(PROMPT, 40, temperature=1.5, seed=seed).text) > 20
    )


@pytest.fixture(scope="module")
def free_text(one_slot: Model, seed: int) -> str:
    return one_slot.generate(PROMPT, 40, temperature=1.5, seed=seed).text


def test_a_generation_ends_at_a_stop_string(one_slot: Model, free_text: str, seed: int) -> None:
    chunks: list[str] = []
    for begin in range(2, 16):
        stop = free_text[begin : begin + 3]
        chunks.clear()
        found = one_slot.generate(
            PROMPT, 40, temperature=1.5, seed=seed, stop=["never this", stop], on_text=chunks.append
        )
        assert found.text == free_text[: free_text.index(stop)]
        assert found.finish_reason == "stop"
        assert "".join(chunks) == found.text
        assert found.stats is not None, "the statistics are known"
        streamed = one_slot.stream(PROMPT, 40, temperature=1.5, seed=seed, stop=stop)
        assert "".join(streamed) == found.text


def test_text_held_back_for_a_stop_is_released_at_the_end(
    one_slot: Model, free_text: str, seed: int
) -> None:
    found = one_slot.generate(PROMPT, 40, temperature=1.5, seed=seed, stop=free_text[-2:] + "more")
    assert (found.text, found.finish_reason == "stop") == (free_text, False)


def test_invalid_stop_strings_are_rejected(tiny_model: Model) -> None:
    for bad in ("", ["a", ""], [1]):
        with pytest.raises(InvalidArgumentError, match="stop must be non-empty"):
            tiny_model.generate(PROMPT, 4, stop=bad)  # type: ignore[arg-type]
    for method in (tiny_model.choose, tiny_model.choose_many):
        with pytest.raises(TypeError, match="keyword.* 'stop'"):
            method([PROMPT], ["A", "B"], stop="x")  # type: ignore[operator]


def test_log_probabilities_are_reported_for_every_token(tiny_model: Model) -> None:
    found = tiny_model.generate(QUESTION, 12, logprobs=3)
    assert found.logprobs is not None
    assert tuple(entry.token for entry in found.logprobs) == found.tokens
    assert "".join(entry.text for entry in found.logprobs) == found.text
    for entry in found.logprobs:
        assert len(entry.top) == 3 and entry.top == tuple(
            sorted(entry.top, key=lambda other: -other.logprob)
        )
        assert entry.logprob == entry.top[0].logprob, "greedy takes the most probable token"
        assert sum(math.exp(other.logprob) for other in entry.top) <= 1 + 1e-5
    assert tiny_model.generate(QUESTION, 12).logprobs is None


@pytest.mark.parametrize("vocab", ["llama-spm", "llama-bpe", "gpt-2"])
def test_token_bytes_join_to_the_generated_text(
    vocab: str, library: Library, random_model_path: Callable[..., Path]
) -> None:
    """These characters have several tokens, whose text is U+FFFD."""
    path = random_model_path(vocab, n_embd=64, n_layers=2, seed=1)
    written = " \U0001f389\U0001f389 \u1e9e\u13a0 x"
    with Model(path, library=library, n_threads=1, n_ctx=256) as model:
        found = model.generate("x:", logprobs=3, schema=Regex(written))
        assert found.logprobs is not None and found.text == written
        assert b"".join(entry.bytes for entry in found.logprobs).decode() == written
        assert any(entry.text == "\ufffd" for entry in found.logprobs)
        texts, control = model.vocabulary().texts, model.vocabulary().control
        for entry in found.logprobs:
            for each in (entry, *entry.top):
                assert each.bytes == (b"" if each.token in control else texts[each.token])


def test_control_tokens_have_a_name_and_no_bytes(tiny_model: Model) -> None:
    (mark,) = tiny_model.tokenize("<|im_start|>", parse_special=True)
    sampling = Sampling(logit_bias=((mark, 100.0),))
    found = tiny_model.generate(PROMPT, 2, logprobs=0, sampling=sampling)
    assert found.logprobs is not None and found.text == ""
    assert [(each.text, each.bytes) for each in found.logprobs] == [("<|im_start|>", b"")] * 2


def test_log_probabilities_are_computed_before_sampling(tiny_model: Model) -> None:
    sampled = tiny_model.generate(PROMPT, 8, logprobs=0, temperature=5.0, seed=4)
    assert sampled.logprobs is not None
    prompt = tiny_model.tokenize(PROMPT, True, True)
    for i, entry in enumerate(sampled.logprobs):
        score = tiny_model.end_of_turn([*prompt, *sampled.tokens[:i]], entry.token)
        assert math.exp(entry.logprob) == pytest.approx(score.probability, abs=1e-3)
        assert entry.top == ()


def test_batches_and_async_models_report_log_probabilities(tiny_model: Model) -> None:
    alone = tiny_model.generate(PROMPT, 6, logprobs=1)
    assert tiny_model.generate_many([PROMPT], 6, logprobs=1)[0].logprobs == alone.logprobs
    face = AsyncModel.of(tiny_model)
    assert asyncio.run(face.generate(PROMPT, 6, logprobs=1)).logprobs == alone.logprobs


@pytest.mark.parametrize("stop", [None, "small ass", "never"])
@pytest.mark.parametrize("speculation", [None, Speculation()])
def test_pieces_of_a_stream_have_the_log_probabilities_of_their_tokens(
    tiny_model: Model, stop: str | None, speculation: Speculation | None
) -> None:
    whole = tiny_model.generate(QUESTION, 12, logprobs=2, stop=stop, speculation=speculation)
    stream = tiny_model.stream(QUESTION, 12, logprobs=2, stop=stop, speculation=speculation)
    found = [entry for piece in stream for entry in piece.logprobs]  # type: ignore[attr-defined]
    assert stream.result.logprobs is not None and whole.logprobs is not None
    assert [entry.token for entry in stream.result.logprobs] == [
        entry.token for entry in whole.logprobs
    ]
    assert found == list(stream.result.logprobs)[: len(found)]
    if stream.result.finish_reason != "stop":  # the tokens of a stop string are in no piece
        assert len(found) == len(stream.result.logprobs)


def test_invalid_numbers_of_log_probabilities_are_rejected(tiny_model: Model) -> None:
    for bad in (-1, 5000, 10**12, 2.5):
        with pytest.raises(
            InvalidArgumentError, match="logprobs must be a whole number from 0 to 1024"
        ):
            tiny_model.generate(PROMPT, 2, logprobs=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no keyword 'logprobs'"):
        tiny_model.choose(PROMPT, ["A", "B"], logprobs=1)  # type: ignore[call-overload]


@pytest.mark.parametrize("prompt", ["The cat sat on the mat. " * 12, "One.<|im_end|>Two", "a"])
def test_a_prompt_is_scored_in_few_passes(tiny_model: Model, prompt: str) -> None:
    tokens = tiny_model.prompt_tokens(prompt)
    before = tiny_model.describe()["passes"]["run"]
    found = tiny_model.prompt_logprobs(prompt, top=1024)
    assert tiny_model.describe()["passes"]["run"] - before <= 2 + len(tokens) // 200
    assert [each.token for each in found] == list(tokens)
    assert math.isnan(found[0].logprob) and not found[0].top
    for i in range(1, len(tokens), max(1, len(tokens) // 8)):
        (entry,) = tiny_model.generate(tokens[:i], 1, logprobs=1024).logprobs or ()
        expected = {each.token: each.logprob for each in entry.top}
        assert found[i].top[0].token == entry.top[0].token
        if tokens[i] in expected:
            assert found[i].logprob == pytest.approx(expected[tokens[i]], abs=0.05)
    assert asyncio.run(AsyncModel.of(tiny_model).prompt_logprobs(prompt))[-1].top == ()
