"""The workload of decisions: models, new inputs, and questions with their options."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from make_test_models import Shape
from write_decision_models import cached_decision_model

from eliza_ffi.decisions import Choice

from .workload import NOUNS, VERBS, Subject, action_names


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
_SIZE: Any = {"n_embd": 1024, "n_layers": 13, "n_heads": 8}
SUBJECTS = (
    DecisionSubject("small 32k", "llama-spm"),
    DecisionSubject("small decision model", "pplx-decider", is_decision_model=True),
    DecisionSubject("wide Q4_K 32k", "llama-spm", "q4_k", **_SIZE),
    DecisionSubject(
        "wide Q4_K decision model", "pplx-decider", "q4_k", **_SIZE, is_decision_model=True
    ),
    DecisionSubject("wide F16 32k", "llama-spm", "f16", **_SIZE),
)


def option_texts(count: int) -> list[str]:
    """Return `count` options of two words. No option is a prefix of another."""
    return [name.lower().replace("_", " ") for name in action_names(count)]


def input_of(tokenize: Callable[[str], Sequence[int]], n_tokens: int, seed: int) -> str:
    """Return random words: the shortest such text with at least `n_tokens` tokens."""
    words = random.Random(seed).choices([word.lower() for word in (*NOUNS, *VERBS)], k=n_tokens)
    least = bisect.bisect_left(
        range(len(words)), n_tokens, key=lambda n: len(tokenize(" ".join(words[:n])))
    )
    return " ".join(words[:least])


def questions_of(n_questions: int, options: Sequence[str]) -> dict[str, Choice]:
    """Return questions by their names; all have the same options."""
    return {
        f"part {i}": Choice(f"What does part {i} of the message ask for?", list(options))
        for i in range(1, n_questions + 1)
    }


def systemone_of(questions: Mapping[str, Choice], options: Sequence[str]) -> dict[str, Any]:
    """Return questions in the format of ``/v1/systemone``."""
    criteria = dict.fromkeys(options)
    return {
        name: {"type": "choice", "instructions": question.instructions, "criteria": criteria}
        for name, question in questions.items()
    }
