"""The compared methods: ours as a table of settings, and the peers.

To add a method of ours, add a line to `_ours`: its name, and a function that returns arguments of
`Model.decide_many`. It may use the labelled rows of the data set. Its time is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eliza_ffi.model import Model

from .datasets import DataSet, Question, Row
from .learned import (
    OpenModel,
    Readings,
    open_both,
    open_calibrated,
    open_candidate,
    open_encoder,
    open_self_trained,
    own_model,
)
from .metrics import Probabilities

Ask: TypeAlias = Callable[[Question, Sequence[str]], Probabilities]
"""Answers a question about some inputs."""

LABELS = (60, 150, 300)
"""The numbers of labelled rows that methods learn from."""

CANDIDATE_LABELS = 150

INPUTS = (0, 100, 300, 1000)
"""The numbers of rows without labels that methods learn from."""

MODELS = (own_model, open_encoder, open_both)
"""A language model, an encoder, and both."""

CALIBRATED = ("calibrate", "calibrate an encoder", "calibrate with an encoder")

DEFAULT = "default"
"""The method that the speed of all others is compared with."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What a method is opened with."""

    path: Path  # the file of the model
    model: Model  # the model, opened by eliza-ffi
    data: DataSet
    rows: tuple[Row, ...]  # the measured rows
    n_threads: int  # compute threads of the language models
    known: Readings  # what methods that learn have read, which grows


OpenMethod: TypeAlias = "Callable[[Subject, ExitStack], Ask]"
"""Prepares a method for a model and a data set. Closing the stack frees its resources."""


@dataclass(frozen=True)
class AnswerMethod:
    """A compared method."""

    name: str
    open: OpenMethod
    n_labels: int = 0  # how many labelled rows it learns from
    n_inputs: int | None = None  # how many inputs without labels it learns from
    # How many labelled rows of every option it learns from, for methods with examples.
    per_option: int = 0
    reads_options: bool = True  # whether the order of the options can change its answers
    most_rows: int = 100_000  # the most rows that it answers, for slow methods
    # Whether the time of its answers is reported. Methods that share what the models have read
    # answer a few rows once more for that.
    is_timed: bool = True

    def labels_used(self, data: DataSet) -> int:
        """Return how many labelled rows of a data set the method uses."""
        return self.per_option * len(data.values) or min(self.n_labels, len(data.train))


Settings: TypeAlias = Callable[[Model, DataSet, Question], dict[str, Any]]
"""Returns the arguments of `Model.decide_many` for a question about a data set."""


def our_method(
    name: str,
    settings: Settings,
    per_option: int = 0,
    open_model: OpenModel = own_model,
) -> AnswerMethod:
    """Return a method of ours, whose settings are computed once for each question."""

    def open_ours(subject: Subject, stack: ExitStack) -> Ask:
        model = open_model(subject, stack)
        known: dict[Question, dict[str, Any]] = {}

        def ask(question: Question, texts: Sequence[str]) -> Probabilities:
            if question not in known:
                known[question] = settings(model, subject.data, question)
            decisions = model.decide_many(texts, {"q": question}, **known[question])
            answers: list[Any] = [decision["q"] for decision in decisions]
            return np.array([answer.distribution for answer in answers])

        return ask

    return AnswerMethod(name, open_ours, per_option=per_option)


def fixed(**settings: Any) -> Settings:
    """Return settings that are the same for all data sets."""
    return lambda model, data, question: settings


def with_examples(per_option: int, **more: Any) -> Settings:
    """Return settings with some labelled rows of every option, the options taking turns."""
    return lambda model, data, question: {
        "examples": data.train[: per_option * len(data.values)],
        **more,
    }


def learned_method(name: str, open_learned: OpenMethod, **facts: int) -> AnswerMethod:
    """Return a method of :mod:`.learned`."""
    return AnswerMethod(name, open_learned, reads_options=False, is_timed=False, **facts)


def _ours() -> tuple[AnswerMethod, ...]:
    chat, plain = {"prompt_format": "chat"}, {"prompt_format": "plain", "prior": "none"}
    input_first, question_first = (
        {"prompt_order": f"{each}-first"} for each in ("input", "question")
    )
    return (
        our_method(DEFAULT, fixed()),
        our_method("chat, input first", fixed(**chat, **input_first)),
        our_method("chat, question first", fixed(**chat, **question_first)),
        our_method("plain, input first", fixed(**plain, **input_first)),
        our_method("plain, question first", fixed(**plain, **question_first)),
        our_method("letters", fixed(answer_style="letters")),
        our_method("4 orders", fixed(orders=4)),
        our_method("prior of inputs", fixed(prior="inputs")),
        our_method("1 example", with_examples(1), per_option=1),
        our_method("2 examples", with_examples(2), per_option=2),
        our_method("1 example, prior of inputs", with_examples(1, prior="inputs"), per_option=1),
        our_method("cosine", fixed(), open_model=open_encoder),
        our_method("cosine, prior of inputs", fixed(prior="inputs"), open_model=open_encoder),
        our_method("decoder + encoder", fixed(), open_model=open_both),
        our_method(
            "decoder + encoder, prior of inputs", fixed(prior="inputs"), open_model=open_both
        ),
        *(
            learned_method(
                f"{name}learned from {n} inputs",
                partial(open_self_trained, n, open_model=each),
                n_inputs=n,
            )
            for name, each in zip(("", "cosine, ", "decoder + encoder, "), MODELS, strict=True)
            for n in INPUTS
        ),
        *(
            learned_method(
                f"{name}, {n} labels", partial(open_calibrated, n, open_model=each), n_labels=n
            )
            for name, each in zip(CALIBRATED, MODELS, strict=True)
            for n in LABELS
        ),
    )


OURS = _ours()
"""Our methods, in the order of the tables. Examples are counted for each option."""

CANDIDATES = tuple(
    learned_method(
        f"{name}, {CANDIDATE_LABELS} labels",
        partial(open_candidate, place, method, CANDIDATE_LABELS, open_model=open_model),
        n_labels=CANDIDATE_LABELS,
    )
    for name, open_model, place, method in (
        ("mean at 20 %", own_model, 0, "head"),
        ("means at 20 and 40 %", own_model, 1, "head"),
        ("last token", own_model, 2, "head"),
        ("last token, own answers", own_model, 2, "head+weights"),
        ("all features", own_model, 3, "head"),
        ("all features, own answers", own_model, 3, "head+weights"),
        ("embedding of an encoder", open_both, 0, "head"),
        ("all features of both models, all answers", open_both, 4, "head+weights"),
    )
)
"""Each head that `calibrate` chooses from, alone."""

TO_DECIDE = {
    "**eliza-ffi, an encoder** (MiniLM)": (
        "cosine, learned from 0 inputs",
        "cosine, learned from 300 inputs",
        "calibrate an encoder, 60 labels",
    ),
    "**eliza-ffi, a decoder** (SmolLM2)": (
        "learned from 0 inputs",
        "learned from 300 inputs",
        "calibrate, 60 labels",
    ),
    "**eliza-ffi, both**": (
        "decoder + encoder, learned from 0 inputs",
        "decoder + encoder, learned from 300 inputs",
        "calibrate with an encoder, 60 labels",
    ),
    "logistic regression on MiniLM's embeddings": (None, None, "MiniLM, 60 labels"),
    "llama-server, a hand-written prompt (SmolLM2)": (
        "llama-server, hand-written loop",
        None,
        None,
    ),
}
"""The rows of README's table: what learns from no examples, from inputs, and from examples."""
