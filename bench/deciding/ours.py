"""Decisions by eliza-ffi: all questions at once, one by one, and the two limits for comparison."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from eliza_ffi.choices.label_set import as_label_set
from eliza_ffi.decisions import ChoiceAnswer, Decision
from eliza_ffi.library.protocol import StreamConfig, StreamStep
from eliza_ffi.model import Model
from eliza_ffi.session.generation import Generation
from eliza_ffi.session.requests import GenerationRequest, choice_request
from eliza_ffi.session.results import RunResult, choice_of
from eliza_ffi.session.run import Run, open_stream

from ..choosing.other_libraries import LlGuidancePicker
from .workload import PutQuestions, Questionnaire


def _generated(
    args: GenerationRequest, run: Run[Any]
) -> Generator[StreamStep | RunResult, None, None]:
    return Generation(run, args).steps()


@dataclass(frozen=True)
class Decided:
    """The answers about an input, and their time."""

    seconds: float
    # For each question the index of the chosen option; -1 if the answer is not an option. None if
    # the method gives no answers.
    answers: tuple[int, ...] | None = None
    # For each question the probabilities of its options; None if the method does not compute them.
    probabilities: tuple[tuple[float, ...], ...] | None = None
    passes: int | None = None  # forward passes; None if the method does not count them
    # How the answers were chosen. ``"constrained"``: by probabilities among the allowed tokens at
    # each step. ``"greedy"``: the most likely allowed token at each step. ``"any"``: the same,
    # among all tokens that spell a label. With labels of one token, all agree.
    scoring: str = "constrained"


class Decider(ABC):
    """A method to answer questions about an input."""

    @abstractmethod
    def decide(self, put: PutQuestions) -> Decided:
        """Answer the questions about a new input."""


@dataclass(frozen=True)
class DecidingSetting:
    """The arguments for creating a decider."""

    model: Model  # a model with a single slot
    questionnaire: Questionnaire
    longest: int  # tokens of the longest prompt
    n_threads: int  # compute threads of the other programs
    # The ports of llama-server with the same file, by the label of the method.
    ports: Mapping[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Remove the input from the slot."""
        with open_stream(self.model.binding, self.model.session.ctx, StreamConfig()) as stream:
            self.model.binding.prefill(stream, [1])


class Together(Decider):
    """All questions with one call of `Model.decide`."""

    def __init__(self, setting: DecidingSetting) -> None:
        self._setting = setting

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        begin = time.perf_counter()
        questions = self._setting.questionnaire.questions
        decision = self._setting.model.decide(put.given, questions)
        return _decided(time.perf_counter() - begin, [decision])


class OneByOne(Together):
    """One call for each question. After the first, the common beginning is in the slot."""

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
    """One call for each question, each with an empty slot."""

    forgets = True


class TokensAlone(Together):
    """No decision: prefills a prompt with the tokens that `Together` decodes, concatenated."""

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        model, tokens = self._setting.model, [*put.prefix, *itertools.chain(*put.endings)]
        begin = time.perf_counter()
        with open_stream(model.binding, model.session.ctx, StreamConfig()) as stream:
            model.binding.prefill(stream, tokens)
            passes = model.binding.stats(stream).forward_passes
            seconds = time.perf_counter() - begin
        return Decided(seconds, passes=passes)


class MaskedDecisions(Decider):
    """llguidance's masks, with one pass for each token of a label after the cached prefix.

    llguidance computes no logits. Therefore the passes come from eliza-ffi's token-by-token
    choice. After each choice, the masks are computed along the chosen tokens, and applied to a row
    of zeros. The time is the sum of both.
    """

    def __init__(self, setting: DecidingSetting) -> None:
        self._setting = setting
        self._labels = setting.questionnaire.labels
        self._choices = as_label_set(self._labels)
        self._row = np.zeros(int(setting.model.describe()["model"]["n_vocab"]), dtype=np.float32)
        self._picker = LlGuidancePicker(setting.model.vocabulary(), self._labels)

    def decide(self, put: PutQuestions) -> Decided:
        self._setting.forget()
        model = self._setting.model
        seconds, answers, passes = 0.0, [], 0
        model.binding.set_option(model.session.ctx, "strategy", "token-by-token")
        try:
            for prompt in put.prompts:
                begin = time.perf_counter()
                args = choice_request(model.session, prompt, self._choices)
                run = model.session.new_run(partial(_generated, args))
                *_, result = run.steps()
                assert isinstance(result, RunResult)
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


def _decided(seconds: float, decisions: Sequence[Decision]) -> Decided:
    answers = [answer for decision in decisions for answer in decision.values()]
    rows = [answer.distribution for answer in answers if isinstance(answer, ChoiceAnswer)]
    return Decided(
        seconds,
        tuple(row.index(max(row)) for row in rows),
        tuple(rows),
        sum(decision.usage.forward_passes for decision in decisions),
    )
