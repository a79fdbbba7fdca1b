"""Label sets that are tokenized once, explicitly or by the cache."""

from __future__ import annotations

import asyncio
import enum
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from eliza_ffi import AsyncModel, Model, PreparedLabels
from eliza_ffi.choices import LabelSet, TokenTreePayload
from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.choices.prepared_labels import MAX_CHOICES, MAX_SETS, ChoiceCache
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.library import Library

PROMPT = "message: good morning\naction: "


class Action(enum.Enum):
    REPLY = "reply now"
    IGNORE = 2


def test_prepared_labels_give_the_same_results_as_plain_labels(tiny_model: Model) -> None:
    for choices in (Action, bool, Literal["yes", 0], ["STOP", "REPLY", "RESPOND"], ("A", "B")):
        for mode in ("greedy", "best"):
            plain, prepared = (
                tiny_model.choose(PROMPT, labels, mode=mode, probabilities=True)
                for labels in (choices, tiny_model.prepare_labels(choices))
            )
            assert (plain.value, plain.text) == (prepared.value, prepared.text)
            assert plain.index == prepared.index
            assert plain.probabilities == pytest.approx(prepared.probabilities)


def test_choosing_from_a_large_prepared_set_works(tiny_model: Model) -> None:
    labels = tiny_model.prepare_labels([f"CHOICE_{i}" for i in range(5000)])
    assert repr(labels) == "PreparedLabels(5000 labels)"
    found = tiny_model.choose(PROMPT, labels)
    assert labels.texts[found.index] == found.value == found.text
    many = tiny_model.choose_many([PROMPT, PROMPT], labels)
    assert [one.value for one in many] == [found.value] * 2


def test_the_library_and_python_tokenize_labels_alike(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    """The tokens of every label agree for several kinds of tokenizers."""
    texts = [" leading", "trailing ", "Ünïcödé 中文 😀", "a  b", "\ttab\nline", "don't", "REPLY"]
    for vocab in ("llama-spm", "llama-bpe"):
        path = random_model_path(vocab, n_embd=64, n_layers=2, seed=1)
        with Model(path, library=library, n_threads=1) as model:
            payload = as_label_set(texts).payload(model.tokenize, model.detokenize)
            tokens = {leaf.name: leaf.tokens for leaf in payload.leaves()}
            for text in texts:
                assert model.choose("x", [text]).tokens == tokens[text], (vocab, text)


def test_labels_prepared_by_another_model_are_rejected(
    tiny_model: Model, library: Library, random_model_path: Callable[..., Path]
) -> None:
    labels = tiny_model.prepare_labels(["a", "b"])
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with (
        Model(path, library=library, n_threads=1) as other,
        pytest.raises(InvalidArgumentError, match="another model"),
    ):
        other.choose("x", labels)


def test_the_cache_keeps_the_most_recently_used_sets() -> None:
    made: list[LabelSet[str]] = []

    def prepare(choices: LabelSet[str], lead: str) -> TokenTreePayload:
        made.append(choices)
        return TokenTreePayload("", ())

    cache = ChoiceCache(prepare)
    first = cache.tokens_of(as_label_set(["a", "b"]))
    assert cache.tokens_of(as_label_set(["a", "b"])) is first
    labels = PreparedLabels(as_label_set(["a"]), cache)
    assert cache.tokens_of(labels) is cache.tokens_of(labels)
    del made[1:]
    for i in range(MAX_SETS):
        cache.tokens_of(as_label_set([f"c{i}"]))
    assert len(made) == 1 + MAX_SETS
    cache.tokens_of(as_label_set(["a", "b"]))
    assert len(made) == 2 + MAX_SETS, "the least recently used set is removed"


@pytest.mark.slow
def test_a_set_larger_than_the_cache_is_cached_alone() -> None:
    cache = ChoiceCache(lambda choices, lead: TokenTreePayload("", ()))
    small = cache.tokens_of(as_label_set(["a"]))
    large = as_label_set([str(i) for i in range(MAX_CHOICES)])
    cached = cache.tokens_of(large)
    assert cache.tokens_of(large) is cached
    assert cache.tokens_of(as_label_set(["a"])) is not small


def test_prepared_labels_do_not_keep_the_model_alive(library: Library) -> None:
    model = Model(library=library, n_threads=1)
    labels = model.prepare_labels(["a", "b"])
    gone = weakref.ref(model)
    model.close()
    del model
    gc.collect()
    assert gone() is None
    assert labels.texts == ("a", "b")


def test_closing_a_model_empties_its_cache(library: Library) -> None:
    """A closed model does not prepare labels either."""
    model = Model(library=library, n_threads=1)
    choices = as_label_set(["a", "b"])
    model.choose("x", choices)
    assert model.session.choices.has(choices)
    model.close()
    assert not model.session.choices.has(choices)
    with pytest.raises(ElizaError, match="is closed"):
        model.prepare_labels(["a", "b"])


@pytest.mark.slow
def test_preparing_a_large_set_does_not_block_the_event_loop(tiny_model: Model) -> None:
    async def ask() -> int:
        face, beats = AsyncModel.of(tiny_model), 0
        asked = asyncio.ensure_future(face.choose(PROMPT, [f"NAME_{i}" for i in range(20000)]))
        while not asked.done():
            await asyncio.sleep(0)
            beats += 1
        await asked
        return beats

    assert asyncio.run(ask()) > 10
