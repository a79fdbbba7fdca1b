"""Decisions of our library: all questions together, one by one, and what they are measured by."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.decisions import ChoiceAnswer, Decision
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.session.generation import GenerationRun
from eliza_ffi.session.lifecycle import open_stream
from eliza_ffi.session.requests import choice_of, choice_request

from ..choosing.other_libraries import LlGuidancePicker, VocabularyBytes
from .workload import PutQuestions, Questionnaire

__all__ = [
    "Decided",
    "Decider",
    "DecidingSetting",
    "MaskedDecisions",
    "OneByOne",
    "OneByOneAnew",
    "Together",
    "TokensAlone",
]


@dataclass(frozen=True)
class Decided:
    """What was answered about an input, and what it took.

    Attributes
    ----------
    seconds : float
    answers : tuple of int, or None
        Of each question the place of its answer; None where nothing was answered, -1 where the
        answer is none of the options.
    probabilities : tuple of tuple of float, or None
        Of each question those of its options; None where nobody finds them.
    passes : int or None
        Forward passes; None where nobody counts them.
    scoring : str
        What was found: ``"legal"``, probabilities among what is legal at each token; ``"joint"``,
        among the whole vocabulary; ``"greedy"``, the likeliest legal token at each step; ``"any"``,
        that among all tokens that spell a label. With labels of one token all answer alike.
    """

    seconds: float
    answers: tuple[int, ...] | None = None
    probabilities: tuple[tuple[float, ...], ...] | None = None
    passes: int | None = None
    scoring: str = "legal"


class Decider(Protocol):
    """What is measured."""

    def decide(self, put: PutQuestions) -> Decided:
        """Answer the questions about an input that has never been seen."""

    def close(self) -> None:
        """Free what it holds."""


@dataclass(frozen=True)
class DecidingSetting:
    """What a decider is made of.

    Attributes
    ----------
    model : Model
        With a single slot.
    questionnaire : Questionnaire
    longest : int
        Tokens of the longest prompt.
    n_threads : int
        What others may use, too.
    ports : mapping of str to int
        Where llama-server serves the same file, by the label of the way that asks it.
    """

    model: Model
    questionnaire: Questionnaire
    longest: int
    n_threads: int
    ports: Mapping[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Have nothing of an input in the slot."""
        with open_stream(self.model.binding, self.model.session.ctx, StreamConfig()) as stream:
            self.model.binding.prefill(stream, [1])


class Together:
    """All questions in one call."""

    def __init__(self, setting: DecidingSetting) -> None:
        self._setting = setting

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        begin = time.perf_counter()
        questions = self._setting.questionnaire.questions
        decision = self._setting.model.decide(put.given, questions)
        return _decided(time.perf_counter() - begin, [decision])

    def close(self) -> None:
        pass


class OneByOne(Together):
    """A call for each question; what they share is in the slot after the first."""

    forgets = False

    def decide(self, put: PutQuestions) -> Decided:
        setting, seconds, decisions = self._setting, 0.0, []
        for i, (name, question) in enumerate(setting.questionnaire.questions.items()):
            if i == 0 or self.forgets:
                setting.forget()
            begin = time.perf_counter()
            decisions.append(setting.model.decide(put.given, {name: question}))
            seconds += time.perf_counter() - begin
        return _decided(seconds, decisions)


class OneByOneAnew(OneByOne):
    """A call for each question that begins with an empty slot."""

    forgets = True


class TokensAlone(Together):
    """No decision: as many tokens as `Together` decodes, one behind the other as a prompt."""

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        model, tokens = self._setting.model, [*put.prefix, *itertools.chain(*put.endings)]
        begin = time.perf_counter()
        with open_stream(model.binding, model.session.ctx, StreamConfig()) as stream:
            model.binding.prefill(stream, tokens)
            passes = model.binding.stats(stream).forward_passes
            seconds = time.perf_counter() - begin
        return Decided(seconds, passes=passes)


class MaskedDecisions:
    """llguidance's masks: a pass for each token of an answer, behind the prefix that all share.

    llguidance computes no logits. The passes are those of our choices, token by token, and the
    masks are driven along the tokens that were chosen, on logits that say nothing: both are done,
    one after the other, and what they take is added up.
    """

    def __init__(self, setting: DecidingSetting) -> None:
        self._setting = setting
        self._labels = setting.questionnaire.labels
        self._choices = as_label_set(self._labels)
        self._row = np.zeros(int(setting.model.describe()["model"]["n_vocab"]), dtype=np.float32)
        self._picker = LlGuidancePicker(VocabularyBytes(setting.model), self._labels)

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        model = self._setting.model
        seconds, answers, passes = 0.0, [], 0
        model.binding.set_option(model.session.ctx, "strategy", "token-by-token")
        try:
            for prompt in put.prompts:
                begin = time.perf_counter()
                args = choice_request(model.session, prompt, self._choices)
                run = GenerationRun(model.binding, model.session.ctx, args)
                for _ in run.steps():
                    pass
                result = run.result()
                self._walk(result.tokens)
                seconds += time.perf_counter() - begin
                chosen = choice_of(self._choices, args, result, 0.0)
                answers.append(self._labels.index(str(chosen.value)))
                passes += 0 if result.stats is None else result.stats.forward_passes
        finally:
            model.binding.set_option(model.session.ctx, "strategy", "auto")
        return Decided(seconds, tuple(answers), passes=passes, scoring="greedy")

    def _walk(self, tokens: Sequence[int]) -> None:
        self._picker.start()
        for token in tokens:
            self._picker.fill()
            self._picker.pick(self._row.copy())
            self._picker.accept(token)

    def close(self) -> None:
        pass


def _decided(seconds: float, decisions: Sequence[Decision]) -> Decided:
    answers = [answer for decision in decisions for answer in decision.values()]
    rows = [answer.distribution for answer in answers if isinstance(answer, ChoiceAnswer)]
    return Decided(
        seconds,
        tuple(row.index(max(row)) for row in rows),
        tuple(rows),
        sum(decision.usage.passes for decision in decisions),
    )
