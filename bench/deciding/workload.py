"""The workload of decisions: models, new inputs, questions and their options."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from make_test_models import Shape
from write_decision_models import cached_decision_model

from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.asking import asking_of
from eliza_ffi.decisions.auto_prompts import settings_of_prompts
from eliza_ffi.decisions.models.decision_model import DecisionPrompt
from eliza_ffi.decisions.models.model_asking import decision_model_of
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.model import Model

from ..parts.workload import NOUNS, VERBS, Subject, action_names

WORDS, PHRASES, CODES = "words", "phrases", "codes"
"""The kinds of labels: two words, nine words, and the one-token labels of a decision model."""


@dataclass(frozen=True)
class DecisionSubject(Subject):
    """A model with random weights that answers questions."""

    # Whether it is a decision model, which answers with labels of one token. Its `vocab` is its
    # type.
    is_decision_model: bool = False

    def path(self) -> Path:
        """Return the model's file; it is created on first use."""
        if not self.is_decision_model:
            return super().path()
        assert self.vocab is not None
        return cached_decision_model(self.vocab, Shape(**self.shape, context_length=8192))


# In small models, the work outside the forward passes is visible; in wide models, forward passes
# dominate. Decision models of the type pplx-decider have 255 labels of one token.
_WIDE = {"n_embd": 1024, "n_layers": 13, "n_heads": 8}
_Q4_K = {"tensor_type": "q4_k", **_WIDE}
SUBJECTS = (
    DecisionSubject("small 32k", "llama-spm"),
    DecisionSubject("small decision model", "pplx-decider", is_decision_model=True),
    DecisionSubject("wide Q4_K 32k", "llama-spm", **_Q4_K),  # type: ignore[arg-type]
    DecisionSubject("wide Q4_K decision model", "pplx-decider", **_Q4_K, is_decision_model=True),  # type: ignore[arg-type]
    DecisionSubject("wide F16 32k", "llama-spm", "f16", **_WIDE),  # type: ignore[arg-type]
)


def subject_named(name: str) -> DecisionSubject:
    """Return the model in `SUBJECTS` with this name."""
    return next(each for each in SUBJECTS if each.name == name)


def option_texts(
    # `WORDS` or `CODES`: a verb and a noun. `PHRASES`: nine words, with a verb and a noun.
    kind: str,
    count: int,
) -> list[str]:
    """Return `count` options. No option is a prefix of another."""
    pairs = [name.lower().split("_") for name in action_names(count)]
    if kind == PHRASES:
        return [f"a request to {verb} the {noun} of another customer" for verb, noun in pairs]
    return [f"{verb} {noun}" for verb, noun in pairs]


def input_of(tokenize: Callable[[str], Sequence[int]], n_tokens: int, seed: int) -> str:
    """Return random words: the shortest such text with at least `n_tokens` tokens."""
    words = random.Random(seed).choices([word.lower() for word in (*NOUNS, *VERBS)], k=n_tokens)
    least = bisect.bisect_left(
        range(len(words)), n_tokens, key=lambda n: len(tokenize(" ".join(words[:n])))
    )
    return " ".join(words[:least])


@dataclass(frozen=True)
class PutQuestions:
    """Questions about an input, in all forms that the methods require."""

    given: str  # the input
    prefix: tuple[int, ...]  # the tokens at the beginning of all prompts
    endings: tuple[tuple[int, ...], ...]  # for each question the tokens after the prefix
    texts: tuple[str, ...]  # whole prompts as text, with the names of control tokens

    @property
    def prompts(self) -> list[list[int]]:
        """Whole prompts as tokens."""
        return [[*self.prefix, *ending] for ending in self.endings]

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the prefix and all endings."""
        return len(self.prefix) + sum(map(len, self.endings))


class Questionnaire:
    """The same questions about many inputs."""

    def __init__(
        self,
        model: Model,  # the model that answers them
        n_questions: int,
        options: Sequence[str],  # the options of each question
    ) -> None:
        self._model = model
        self.options = list(options)
        self.questions = {
            f"part {i}": Choice(f"What does part {i} of the message ask for?", self.options)
            for i in range(1, n_questions + 1)
        }

    def put(self, given: str) -> PutQuestions:
        """Tokenize the questions about an input as `Model.decide` does with the input first."""
        session, questions = self._model.session, list(self.questions.values())
        wanted = {"prompt_order": "input-first", "prior": "none"}
        given_settings = {} if decision_model_of(session) else wanted
        settings = settings_of_prompts(session, questions, given_settings)
        (prompt,) = asking_of(session, given, questions, settings).args.prompts
        prefix = tuple(map(int, prompt.generation.prompt_tokens))
        endings = tuple(tuple(map(int, ending.tokens)) for ending in prompt.endings)
        texts = tuple(
            session.detokenize([*prefix, *ending], unparse_special=True) for ending in endings
        )
        return PutQuestions(given, prefix, endings, texts)

    @property
    def systemone(self) -> dict[str, Any]:
        """The questions in the format of ``/v1/systemone``."""
        return {
            name: {
                "type": "choice",
                "instructions": question.instructions,
                "criteria": dict.fromkeys(self.options),
            }
            for name, question in self.questions.items()
        }

    @cached_property
    def labels(self) -> list[str]:
        """The text that the model generates for each option."""
        return self._labels_and_temperature[0]

    @property
    def has_own_labels(self) -> bool:
        """Whether the labels are the options themselves."""
        return self.labels == self.options

    @property
    def temperature(self) -> float:
        """The divisor of a decision model's logits; 1 for other models."""
        return self._labels_and_temperature[1]

    @cached_property
    def _labels_and_temperature(self) -> tuple[list[str], float]:
        made = decision_model_of(self._model.session)
        if made is None:
            return self.options, 1.0
        asked = SystemoneQuestion.of(next(iter(self.questions.values())), "any")
        (prompts,) = made.ask([asked], "")
        (prompt,) = prompts.prompts
        assert isinstance(prompt, DecisionPrompt)
        # The labels have one token each, in the order of the options.
        labels = [prompt.labels[prompts.order.index(i)][0] for i in range(len(self.options))]
        anchor = self._model.tokenize(":")
        texts = [self._model.detokenize([*anchor, label]) for label in labels]
        return [text.removeprefix(":") for text in texts], prompts.temperature
