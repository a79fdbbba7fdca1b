"""Tests of Model.

Most tests use random weights with real vocabularies. Tests that need a trained model use the
embedded one.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from demo_prompts import SHOULD_RESPOND_CHOICES, chat_prompt, should_respond_prompt

from eliza_ffi import CacheOptions, Gbnf
from eliza_ffi._resources import default_model_path
from eliza_ffi.choices.label_set import as_label_set, tokenize_choice
from eliza_ffi.elizaos import runner_of
from eliza_ffi.errors import ContextFullError, ElizaError, InvalidArgumentError, NativeFaultError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.session.requests import choice_request
from eliza_ffi.session.results import choice_of

ACTIONS = ["REPLY", "SEND_EMAIL", "SEND_MESSAGE", "SEND", "Grüße", "two words", "日本"]


@pytest.fixture(scope="session", params=["llama-spm", "llama-bpe"])
def model_path(request: pytest.FixtureRequest, random_model_path: Callable[..., Path]) -> Path:
    return random_model_path(request.param, n_embd=64, n_layers=2, seed=1)


@pytest.fixture(scope="session")
def model(library: Library, model_path: Path) -> Iterator[Model]:
    with Model(model_path, library=library, n_ctx=512, n_threads=1, seed=11) as model:
        yield model


def test_detokenizing_tokens_gives_the_text_back(model: Model) -> None:
    for text in ("Hello world", "Grüße an 日本 😀", "two\nlines\n", "NUL \0 inside", "a" * 2000):
        tokens = model.tokenize(text)
        assert all(isinstance(token, int) for token in tokens)
        assert model.detokenize(tokens) == text
        assert model.detokenize(np.array(tokens)) == text
    assert model.tokenize("") == []
    assert model.detokenize([]) == ""


def test_special_tokens_are_added_and_parsed_only_on_request(model: Model) -> None:
    plain = model.tokenize("hi")
    assert model.tokenize("hi", add_special=True)[-len(plain) :] == plain
    bos = model.tokenize("hi", add_special=True)[0]
    assert bos not in plain
    spelled = model.detokenize([bos], unparse_special=True)
    assert model.tokenize(spelled, parse_special=True)[-1] == bos
    assert bos not in model.tokenize(spelled)
    assert model.detokenize([bos]) == ""


def test_generation_stops_at_max_tokens_and_streams_the_same_text(model: Model) -> None:
    chunks: list[str] = []
    generation = model.generate("Once upon", max_tokens=8, on_text=chunks.append)
    assert len(generation.tokens) == 8
    assert generation.finish_reason == "length"
    assert generation.prompt_tokens == len(model.tokenize("Once upon", add_special=True))
    assert "".join(chunks) == generation.text
    assert list(model.stream("Once upon", 8)) == chunks
    assert generation.stats is not None
    assert generation.stats.generated_tokens == 8
    assert generation.stats.n_vocab > 30000


def test_a_seed_makes_sampling_reproducible(model_path: Path, library: Library) -> None:
    def sample(seed: int) -> tuple[int, ...]:
        with Model(model_path, library=library, n_ctx=128, n_threads=1, seed=seed) as model:
            labels = [model.choose("x", ["a", "b"], mode="sample").index for _ in range(10)]
            assert len(set(labels)) == 1
            return model.generate("x", max_tokens=12, temperature=2.0).tokens

    assert sample(0) == sample(0)
    assert sample(0) != sample(1)


def test_generated_text_matches_the_grammar(model: Model) -> None:
    generation = model.generate("x", max_tokens=20, schema=Gbnf('root ::= ("ab" | "cd") "!"'))
    assert generation.text in ("ab!", "cd!")
    assert generation.finish_reason == "end"
    with pytest.raises(InvalidArgumentError, match="grammar"):
        model.generate("x", schema=Gbnf("root ::= ("))
    with pytest.raises(InvalidArgumentError, match="grammar must be a non-empty string, got ''"):
        model.generate("x", schema=Gbnf(""))


@pytest.fixture
def unloaded_path(model_path: Path, tmp_path: Path) -> Path:
    """Return a new path for the model, because a model that is already loaded would be shared."""
    path = tmp_path / "model.gguf"
    path.symlink_to(model_path)
    return path


# ---- Labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["greedy", "sample", "best"])
def test_a_choice_is_exactly_a_label(model: Model, mode: str) -> None:
    for prompt in ("What now? ", 'x {"action":"', "日"):
        choice = model.choose(prompt, ACTIONS, mode=mode)
        assert choice.value == choice.text == ACTIONS[choice.index]
        assert choice.probability == pytest.approx(math.exp(choice.logprob))
        assert 0.0 < choice.probability <= 1.0
        assert 0 <= choice.forward_passes <= len(choice.tokens)
        assert choice.seconds > 0.0


def test_every_label_can_be_chosen(model: Model) -> None:
    # A single label is forced, so the result must equal the label with every tokenizer.
    for text in [*ACTIONS, " leading space", "trailing ", "\n", "a" * 300, "<s>", "{}", "0"]:
        assert model.choose("x", [text]).text == text


@pytest.mark.parametrize("mode", ["best", "sample"])
def test_probabilities_of_all_labels_sum_to_one(model: Model, mode: str) -> None:
    temperature = 5.0 if mode == "sample" else 1.0
    choice = model.choose("Hello", ACTIONS, probabilities=True, mode=mode, temperature=temperature)
    assert choice.probabilities is not None
    assert list(choice.probabilities) == ACTIONS
    assert math.isclose(sum(choice.probabilities.values()), 1, abs_tol=1e-6)
    assert math.isclose(choice.probabilities[choice.value], choice.probability, rel_tol=1e-6)
    assert model.choose("Hello", ACTIONS).probabilities is None


@pytest.mark.parametrize(
    ("message", "channel", "expected"),
    [
        ("Could you explain to me why the sea is salty?", "dm", "RESPOND"),
        ("Please stop talking now.", "dm", "STOP"),
    ],
)
def test_the_embedded_model_separates_questions_from_stop_requests(
    tiny_model: Model, message: str, channel: str, expected: str
) -> None:
    prompt = should_respond_prompt(message, channel)
    choice = tiny_model.choose(prompt, SHOULD_RESPOND_CHOICES, probabilities=True)
    assert choice.value == expected
    assert choice.probability > 0.6
    assert choice.probabilities is not None
    assert choice.ranked()[0] == (expected, choice.probabilities[expected])


def test_a_model_without_a_path_is_the_embedded_model(library: Library, tiny_model: Model) -> None:
    with Model(library=library, n_threads=1) as model:
        assert model.path == tiny_model.path == str(default_model_path())
        said = model.generate(chat_prompt([{"role": "user", "content": "hello"}]), max_tokens=40)
        assert len(said.text.split()) > 1


def test_max_tokens_inside_a_label_raises_and_names_the_length(model: Model) -> None:
    labels = as_label_set(["a" * 300, "b" * 200])
    leaves = labels.payload(model.tokenize, model.detokenize).leaves()
    longest = max(len(leaf.tokens) for leaf in leaves)
    said = rf"max_tokens=1 ended .* inside a label, after .* raise it to {longest}, the longest"
    with pytest.raises(InvalidArgumentError, match=said):
        model.choose("x", labels.texts, max_tokens=1)
    assert model.choose("x", labels.texts, max_tokens=longest).value in labels.texts


def test_a_truncated_label_is_an_error_even_if_it_equals_another(model: Model) -> None:
    short, long = "SEND", "SEND_MESSAGE"
    payload = as_label_set([short, long]).payload(model.tokenize, model.detokenize)
    in_short, in_long = (leaf.tokens for leaf in payload.leaves())
    assert in_long[: len(in_short)] == in_short
    with pytest.raises(InvalidArgumentError, match="max_tokens"):
        model.choose("x", [short, long], max_tokens=len(in_short))


@pytest.mark.parametrize("mode", ["greedy", "best"])
@pytest.mark.parametrize("probabilities", [True, False])
def test_a_label_that_does_not_fit_the_context_raises(
    model_path: Path, library: Library, mode: str, probabilities: bool
) -> None:
    # The labels differ only after more tokens than the context has room for.
    labels = ["of " * 20 + ending for ending in ("this", "that")]
    with Model(model_path, library=library, n_ctx=256, n_slots=1, n_threads=1) as model:
        with pytest.raises(ContextFullError, match="has 21 tokens after a prompt of 250"):
            model.choose([5] * 250, labels, mode=mode, probabilities=probabilities)
        assert model.choose([5] * 200, labels, mode=mode).value in labels


def test_generated_text_that_is_not_a_label_is_a_fault(model: Model) -> None:
    labels = as_label_set(["yes", "no"])
    request = choice_request(model.session, "x", labels)
    result: Any = SimpleNamespace(text="maybe", finish_reason="leaf", leaf=None)
    said = r"one of the 2 labels, got 'maybe' \(finish reason leaf\)"
    with pytest.raises(NativeFaultError, match=said):
        choice_of(labels, request, result, 0.0)


def test_a_label_that_the_tokenizer_cannot_write_is_named() -> None:
    def detokenize(tokens: object) -> str:
        return "\nRESPOND "

    with pytest.raises(InvalidArgumentError, match=r"cannot spell the label 'RESPOND'.*RESPOND "):
        tokenize_choice("RESPOND", lambda text: [1, 2], detokenize)


def test_the_same_labels_are_tokenized_only_once(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = as_label_set(["once", "twice"])
    first = choice_request(model.session, "x", labels).constraint
    monkeypatch.setattr(model.binding, "prepare_choices", pytest.fail)
    second = choice_request(model.session, "x", as_label_set(["once", "twice"])).constraint
    assert first is not None and second is first


# ---- Errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"n_ctx": -5}, "n_ctx"),
        ({"n_slots": 0}, "n_slots"),
        ({"n_slots": 65}, "n_slots"),
        ({"n_threads": 100000}, "n_threads"),
        ({"seed": 2**40}, "seed"),
        ({"n_gpu_layers": -7}, "n_gpu_layers"),
        ({"options": {"no_such": "1"}}, "no_such"),
    ],
)
def test_an_option_out_of_range_is_rejected_by_name(
    library: Library, model_path: Path, option: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        Model(model_path, library=library, **option)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([1, 2**31], r"tokens\[1\] is 2147483648, outside 0 to 2147483647"),
        ([-1], r"tokens\[0\] is -1, outside"),
        ([1.5], "flat sequence of whole numbers, got a list .float64"),
        ([[1, 2]], r"got a list \(int64, shape \[1, 2\]\)"),
        ([2**31 - 1], "2147483647"),
    ],
)
def test_invalid_token_ids_are_rejected_with_their_position(
    model: Model, tokens: list[int], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        model.generate(tokens, max_tokens=1)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cache", CacheOptions(slot=99), "slot_id: expected -1 .* got 99"),
        ("top_k", 2**40, "top_k must be .* to 2147483647, got 1099511627776"),
        ("temperature", -0.5, "temperature must be a number of 0 or more, got -0.5"),
        ("top_p", 1.5, "top_p must be a number from 0 to 1, got 1.5"),
        ("cache", CacheOptions(type_k="q7"), 'cache_type_k: .* got "q7"'),
        ("schema", Gbnf('root ::= "\0"'), "gbnf_grammar contains a NUL"),
    ],
)
def test_an_invalid_setting_of_a_generation_is_rejected_by_name(
    model: Model, field: str, value: object, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        model.generate("x", max_tokens=1, **{field: value})  # type: ignore[arg-type]


def test_a_prompt_longer_than_the_context_raises_with_the_limit(model: Model) -> None:
    with pytest.raises(ContextFullError, match=r"600 tokens.*context of 512.*n_ctx"):
        model.generate([5] * 600)


def test_a_generation_that_fills_the_context_ends_there(model_path: Path, library: Library) -> None:
    options = {"n_ctx": 256, "n_slots": 1, "n_threads": 1}
    with Model(model_path, library=library, **options) as model:  # type: ignore[arg-type]
        generation = model.generate([5] * 250, max_tokens=0)
    assert generation.finish_reason == "context_full"
    assert 1 <= len(generation.tokens) <= 7


# ---- Life cycle -----------------------------------------------------------------------------


def test_closing_twice_is_harmless_and_later_use_raises(model_path: Path, library: Library) -> None:
    model = Model(model_path, library=library, n_ctx=64, n_threads=1)
    model.close()
    model.close()
    uses: list[Callable[[], object]] = [
        lambda: model.tokenize("x"),
        lambda: model.detokenize([1]),
        lambda: model.generate("x"),
        lambda: model.stream("x"),
        lambda: model.choose("x", ["A"]),
        lambda: model.embed("x"),
        lambda: model.end_of_turn("x", 5),
        lambda: runner_of(model),
        model.describe,
    ]
    for use in uses:
        with pytest.raises(ElizaError, match="is closed"):
            use()


def test_a_stream_keeps_its_model_alive(model_path: Path, library: Library) -> None:
    stream = Model(model_path, library=library, n_ctx=64, n_threads=1).stream("x", 6)
    first = next(stream)
    gc.collect()
    assert len([first, *stream]) >= 2


def test_closing_the_model_ends_a_running_generation(model_path: Path, library: Library) -> None:
    model = Model(model_path, library=library, n_ctx=4096, n_slots=1, n_threads=1)
    stream = model.stream("x", 0)
    next(stream)
    model.close()
    with pytest.raises(ElizaError, match=r"^the model .* is closed$") as caught:
        list(stream)
    assert not isinstance(caught.value, InvalidArgumentError)  # no argument is wrong


def test_progress_is_reported_during_load_and_prefill(
    unloaded_path: Path, library: Library
) -> None:
    seen: list[tuple[str, float]] = []
    options = {"n_batch": "64"}
    with Model(
        unloaded_path,
        library=library,
        n_ctx=512,
        n_threads=1,
        options=options,
        progress=lambda stage, fraction: seen.append((stage, fraction)),
    ) as model:
        model.generate([5] * 200, max_tokens=1)
        model.binding.set_progress_callback(model.session.ctx, None)
        model.generate([6] * 200, max_tokens=1)  # is not reported
    stages = [stage for stage, _ in seen]
    assert set(stages) == {"load", "prefill"}
    assert stages == sorted(stages)
    prefill = [fraction for stage, fraction in seen if stage == "prefill"]
    assert prefill == sorted(prefill)
    assert len(prefill) >= 4
    assert prefill[-1] == 1.0


@pytest.mark.parametrize("at", ["load", "prefill"])
def test_an_exception_in_the_progress_callback_reaches_the_caller(
    unloaded_path: Path, library: Library, at: str
) -> None:
    def progress(stage: str, fraction: float) -> None:
        if stage == at:
            raise InterruptedError(stage)

    with (
        pytest.raises(InterruptedError, match=at),
        Model(unloaded_path, library=library, n_ctx=64, n_threads=1, progress=progress) as model,
    ):
        model.generate("x", max_tokens=1)


def test_progress_begins_soon_and_does_not_change_the_result(
    library: Library, plain_path: Path
) -> None:
    """With a progress callback, the prompt is decoded in pieces, the first of them short."""
    prompt = list(range(40, 440))
    fractions: list[float] = []
    types = CacheOptions(type_k="f32", type_v="f32")

    def progress(stage: str, fraction: float) -> None:
        if stage == "prefill":
            fractions.append(fraction)

    with Model(plain_path, library=library, n_threads=1, n_ctx=512, progress=progress) as watched:
        text = watched.generate(prompt, 8, cache=types).tokens
    with Model(plain_path, library=library, n_threads=1, n_ctx=512) as unwatched:
        assert unwatched.generate(prompt, 8, cache=types).tokens == text
    assert fractions[0] <= 32 / len(prompt)
