"""`Model.rank` returns the labels that have the highest probabilities of all."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import share
from exhaustive_ranking import Exhaustive
from full_precision import write_in_full_precision
from hypothesis import given, settings
from hypothesis import strategies as st
from label_strategies import KINDS, label_sets, labels_of, product_names

from eliza_ffi import CacheOptions, RankResult
from eliza_ffi._resources import default_model_path
from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.errors import GenerationCancelledError, InvalidArgumentError
from eliza_ffi.library import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import ChoiceResult, Model
from eliza_ffi.session.runs import rank_run

FULL_PRECISION = CacheOptions(type_k="f32", type_v="f32")
TOLERANCE = 1e-4
"""With weights and cache in f32, the log-probabilities of two ways to decode differ by less."""

QUANTIZED = 0.05
"""The same for the embedded model, for labels that differ by more."""

PROMPT = "Sort the message into a category.\nmessage: the new chair is for the garden\ncategory:"
PROMPTS = ("Product:", PROMPT, "We sell", "code:")
VOCABULARIES = ("llama-spm", "gpt-2", "falcon", "llama-bpe", "qwen2", "gemma-4")
SLOW = frozenset(VOCABULARIES[1:])


@pytest.fixture(scope="module")
def path_of(
    random_model_path: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Return a function that returns a model in full precision, by name.

    ``trained`` is the embedded model. All other names are vocabularies of models with random
    weights.
    """

    @functools.cache
    def path_of(name: str, logit_std: float = 2.5) -> Path:
        if name == "trained":
            out = tmp_path_factory.mktemp("trained") / "model.gguf"
            return write_in_full_precision(Path(default_model_path()), out)
        return random_model_path(
            name, n_embd=64, n_layers=2, seed=3, tensor_type="f32", logit_std=logit_std
        )

    return path_of


class Pair:
    """A model, and the same model that decodes one token at a time."""

    def __init__(self, path: Path, library: Library) -> None:
        def opened(**options: str) -> Model:
            return Model(path, library=library, n_ctx=2048, n_threads=1, options=options)

        self.model, self.reference = opened(), opened(strategy="token-by-token")

    def close(self) -> None:
        self.model.close()
        self.reference.close()

    def all_of(self, labels: list[str], prompt: str = PROMPT) -> Exhaustive:
        binding, ctx = self.reference.binding, self.reference.session.ctx
        prepared = binding.prepare_choices(ctx, labels)
        config = StreamConfig(cache_type_k="f32", cache_type_v="f32")
        with closing(binding.open(ctx, config)) as stream:
            binding.prefill(stream, self.reference.prompt_tokens(prompt))
            (scores,) = binding.score_endings(
                stream, [((), prepared)], full=False, allowed_probability=False
            )
        return Exhaustive(labels, scores.constrained)

    def rank(self, labels: Any, k: int = 5, **more: Any) -> RankResult[Any]:
        return self.model.rank(PROMPT, labels, k, cache=FULL_PRECISION, **more)


@pytest.fixture(scope="module")
def pair_of(library: Library, path_of: Callable[..., Path]) -> Iterator[Callable[..., Pair]]:
    with ExitStack() as opened:

        @functools.cache
        def pair_of(name: str, logit_std: float = 2.5) -> Pair:
            return opened.enter_context(closing(Pair(path_of(name, logit_std), library)))

        yield pair_of


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, logit_std), id=id, marks=pytest.mark.slow if name in SLOW else ())
        for id, name, logit_std in (
            ("trained", "trained", 2.5),
            *((name, name, 2.5) for name in VOCABULARIES),
            ("indifferent", "llama-spm", 0.0),
            ("confident", "llama-spm", 10.0),
        )
    ],
)
def pair(request: pytest.FixtureRequest, pair_of: Callable[..., Pair]) -> Pair:
    return pair_of(*request.param)


@pytest.fixture(scope="module")
def trained(pair_of: Callable[..., Pair]) -> Pair:
    return pair_of("trained")


# ---- The best labels ---------------------------------------------------------------------------


LIMITS = st.sampled_from([None, 10_000])
"""Without a limit of passes, a search may read everything in one go. With a limit it never does."""


@settings(max_examples=16)
@given(labels=label_sets(most=150), k=st.integers(1, 12), limit=LIMITS)
def test_ranked_labels_are_the_most_probable_of_all(
    pair: Pair, labels: list[str], k: int, limit: int | None
) -> None:
    pair.all_of(labels).check(pair.rank(labels, k, max_passes=limit), k, TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["words", "codes", "pieces"])
def test_the_best_of_a_very_large_label_set_are_found(trained: Pair, kind: str) -> None:
    labels = labels_of(kind, share(20_000), seed=1)
    trained.all_of(labels).check(trained.rank(labels, 5), 5, TOLERANCE)


@given(labels=label_sets(most=60))
@settings(max_examples=10)
def test_choose_returns_the_first_label_of_a_ranking(trained: Pair, labels: list[str]) -> None:
    ranked = trained.rank(labels, 1)
    chosen = trained.model.choose(PROMPT, labels, cache=FULL_PRECISION)
    assert chosen.proven
    assert (chosen.value,) == ranked.labels
    assert chosen.logprob == pytest.approx(np.log(ranked.probabilities[0]), abs=TOLERANCE)


# ---- Groups, levels, limits --------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), n=st.integers(20, 200), k=st.integers(1, 6), limit=LIMITS)
@pytest.mark.parametrize("level", [1, 2])
def test_groups_have_the_sum_of_their_labels_probabilities(
    trained: Pair, level: int, seed: int, n: int, k: int, limit: int | None
) -> None:
    labels = labels_of("paths", n, seed)
    ranked = trained.rank(labels, k, separator=" > ", level=level, max_passes=limit)
    trained.all_of(labels).groups(" > ", level).check(ranked, k, TOLERANCE)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), n=st.integers(20, 200))
def test_levels_bound_the_probability_of_each_part_of_the_best_path(
    trained: Pair, seed: int, n: int
) -> None:
    labels = labels_of("paths", n, seed)
    ranked = trained.rank(labels, 2, separator=" > ")
    every = trained.all_of(labels)
    assert ranked.levels is not None
    parts = ranked.labels[0].split(" > ")
    assert [level.text for level in ranked.levels] == [
        " > ".join(parts[: i + 1]) for i in range(len(parts))
    ]
    for i, level in enumerate(ranked.levels):
        exact = np.exp(every.groups(" > ", i + 1).logprob_of(level.text))
        assert level.probability <= exact * (1 + TOLERANCE)
        assert exact <= level.at_most * (1 + TOLERANCE)
    assert ranked.levels[-1].probability >= ranked.probabilities[0] * (1 - 1e-9)


def test_a_limit_of_passes_is_kept_and_reported(trained: Pair) -> None:
    labels = product_names(4000)
    whole = trained.rank(labels)
    every = trained.all_of(labels)
    assert whole.forward_passes > 2
    none = trained.rank(labels, max_passes=0)
    assert (none.labels, none.proven, none.forward_passes) == ((), False, 0)
    assert none.rest == pytest.approx(1.0)
    for limit in range(1, whole.forward_passes + 3):
        ranked = trained.rank(labels, max_passes=limit)
        assert ranked.forward_passes <= limit
        for label, probability in ranked:
            expected = np.exp(every.logprob_of(label))
            assert probability == pytest.approx(expected, rel=TOLERANCE)
        assert ranked.rest == pytest.approx(1 - sum(ranked.probabilities))
        if ranked.proven:
            every.check(ranked, 5, TOLERANCE)
    assert ranked.proven


# ---- Passes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trained", "llama-spm"])
def test_the_top_five_of_8000_names_need_at_most_five_passes(
    name: str, library: Library, path_of: Callable[..., Path]
) -> None:
    """Usually four: how many rows a pass should read depends on measured times."""
    with Model(path_of(name), library=library, n_threads=1) as model:
        labels = model.prepare_labels(product_names(8000))
        for prompt in PROMPTS:
            ranked = model.rank(prompt, labels)
            assert ranked.proven
            assert ranked.forward_passes <= 5, prompt


@pytest.mark.parametrize(("name", "logit_std"), [("trained", 2.5), ("llama-spm", 10.0)])
def test_a_confident_ranking_needs_at_most_one_pass_more_than_greedy(
    pair_of: Callable[..., Pair], name: str, logit_std: float
) -> None:
    """Confident means that the best label has a probability of at least one half."""
    model = pair_of(name, logit_std).model
    n_confident = 0
    for seed, kind in enumerate(KINDS):
        labels = model.prepare_labels(labels_of(kind, 800, seed))
        for prompt in PROMPTS:
            model.rank(prompt, labels)  # brings the prompt into the cache
            ranked = model.rank(prompt, labels, 1)
            if ranked.probabilities[0] >= 0.5:
                n_confident += 1
                greedy = model.choose(prompt, labels, mode="greedy")
                assert ranked.forward_passes <= passes_of(greedy) + 1, (kind, prompt)
    assert n_confident >= 3


def passes_of(choice: ChoiceResult[str]) -> int:
    """Return the forward passes of a choice whose prompt is in the cache."""
    assert choice.stats is not None
    return choice.stats.forward_passes


# ---- Kinds of labels, both faces ---------------------------------------------------------------


class Action(enum.Enum):
    REPLY = "reply now"
    IGNORE = 2
    ARCHIVE = "archive"


def test_enums_and_prepared_labels_return_their_values(tiny_model: Model) -> None:
    members = tiny_model.rank(PROMPT, Action, 3)
    assert set(members.labels) == set(Action)
    assert members[0] == (members.labels[0], members.probabilities[0])
    assert members[1:] == list(members)[1:] and members[-1] == list(members)[-1]
    assert len(members) == 3
    texts = list(as_label_set(Action).texts)
    plain = tiny_model.rank(PROMPT, texts, 2)
    found = tiny_model.rank(PROMPT, Action, 2)
    prepared = tiny_model.rank(PROMPT, tiny_model.prepare_labels(Action), 2)
    assert found.labels == prepared.labels
    assert found.labels == tuple(list(Action)[texts.index(label)] for label in plain.labels)
    assert found.probabilities == prepared.probabilities == pytest.approx(plain.probabilities)


def check_same(
    found: list[RankResult[Any]], expected: list[RankResult[Any]], tolerance: float = QUANTIZED
) -> None:
    for each, other in zip(found, expected, strict=True):
        assert each.labels == other.labels
        assert each.proven == other.proven
        assert each.probabilities == pytest.approx(other.probabilities, rel=tolerance)
        assert each.rest == pytest.approx(other.rest, abs=tolerance)


# ---- Cancellation, shared passes ---------------------------------------------------------------


def test_a_ranking_can_be_cancelled(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session, labels = tiny_model.session, product_names(500)
    expected = tiny_model.rank(PROMPT, labels)
    run = rank_run(session, PROMPT, labels, method="rank")
    rank = tiny_model.binding.rank

    def cancelled_meanwhile(*arguments: Any, **more: Any) -> Any:
        run.cancel()
        return rank(*arguments, **more)

    monkeypatch.setattr(tiny_model.binding, "rank", cancelled_meanwhile)
    with pytest.raises(GenerationCancelledError):
        next(run.steps())
    monkeypatch.undo()
    with pytest.raises(GenerationCancelledError, match="the request was cancelled"):
        next(run.steps())
    check_same([tiny_model.rank(PROMPT, labels)], [expected])


def test_unsuitable_arguments_are_named(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="k must be a whole number of 1 or more, got 0"):
        tiny_model.rank(PROMPT, ["a", "b"], 0)
    with pytest.raises(InvalidArgumentError, match="level needs separator"):
        tiny_model.rank(PROMPT, ["a > b", "b"], level=1)
    with pytest.raises(InvalidArgumentError, match="level must be at most 2"):
        tiny_model.rank(PROMPT, ["a > b", "b"], separator=" > ", level=3)
    with pytest.raises(InvalidArgumentError, match="separator must not be empty"):
        tiny_model.rank(PROMPT, ["a > b", "b"], separator="")
    with pytest.raises(InvalidArgumentError, match=r"labels\[1\]"):
        tiny_model.rank(PROMPT, ["a", "a"])
