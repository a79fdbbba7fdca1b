"""The tokens of decisions' prompts: the text of :mod:`.layout` in the model's chat template, which
ends where the assistant's turn begins, or as plain text. No input can end a turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chat.prompt import Prompt, split_trailing_spaces
from ..choices.label_set import LabelSet
from ..errors import InvalidArgumentError
from ..library.protocol import PreparedChoices
from ..session.requests import continued_by, prompt_tokens
from .layout import frame
from .probabilities import Array
from .prompt_settings import PromptSettings
from .prompts import RenderedQuestion
from .questions import Choice

if TYPE_CHECKING:
    from ..session.session import Session

NEAR = 64
"""Text at a distance of this many characters is assumed not to affect a tokenizer's splits."""


@dataclass(frozen=True, eq=False)
class QuestionTokens:
    """The tokens of a question's prompt, and the labels that follow. `lead` has the spaces that
    each label begins with, because they have no tokens in the prompt."""

    tokens: list[int]
    labels: PreparedChoices
    lead: str


class QuestionPrompt:
    """The prompt of a question in one order of its options, prepared for any input. If `k` is not
    None, the k most probable labels are searched instead of scoring all."""

    def __init__(self, session: Session, asked: RenderedQuestion, settings: PromptSettings) -> None:
        self.asked, self._settings, self.k = asked, settings, None
        is_given = asked.order == tuple(range(len(asked.order)))
        self._place: Any = slice(None) if is_given else np.argsort(asked.order)
        self._parts: list[list[int]] | None = None
        if asked.options:
            answers = asked.answers if settings.prior == "options" else None
            texts = [option.label for option in asked.options]
            if answers is not None:
                asked = replace(asked, options=tuple(each.in_words for each in asked.options))
                texts = list(dict.fromkeys(itertools.chain(*answers)))
                self._parts = [[texts.index(each) for each in listed] for listed in answers]
            self._labels: LabelSet[Any] = LabelSet(texts, texts)
        else:
            assert isinstance(asked.question, Choice)
            self._labels, self.k = asked.question.label_set, asked.question.top
        self._read: Callable[[str], list[int]] | None = None
        if settings.prompt is None:
            self._frame = frame(
                asked, settings.format, settings.order, settings.shots_of(asked.question)
            )
            roles = [*(role for role, _ in self._frame.turns), "user"]
            is_plain = settings.format == "plain"
            self._around = (
                ["", ""] if is_plain else session.chat().around(roles, close_reasoning=True)
            )
            if self._around is not None:
                self._prepare(session, self._around[-1])

    def _prepare(self, session: Session, end: str) -> None:
        whole = Prompt().text("x" + self._frame.after).template(end)
        shorter: Any
        shorter, self.lead = split_trailing_spaces(whole)
        try:
            self.choices = session.choices.tokens_of(self._labels, self.lead)
        except InvalidArgumentError:  # no space can be before one of the labels
            shorter, self.lead = whole, ""
            self.choices = session.choices.tokens_of(self._labels)
        (after, _), *rest = shorter.parts

        def ended(before: str) -> Prompt:
            return Prompt(((before + after[1:], False), *rest))

        begin, before = self._turns(), self._frame.before
        self._read = session.prepared(lambda text: begin + ended(before + text))
        self.read_near = session.prepared(ended)

    @property
    def has_words(self) -> bool:
        """Whether the words of the descriptions are answers, too."""
        return self._parts is not None

    def of_options(self, scores: Array) -> Array:
        """Return the scores of the options in the question's order, from the scores of all labels.
        An option with several answers gets their mean."""
        if self._parts is not None:
            scores = np.array([scores[part].mean() for part in self._parts])
        of_options: Array = scores[self._place]
        return of_options

    @property
    def beginning(self) -> Any:
        """What is before the input; None if this depends on the input."""
        return self._read and (self._frame.turns, self._frame.before)

    def _turns(self) -> Prompt:
        assert self._around is not None
        prompt = Prompt().template(self._around[0])
        for (_, content), template in zip(self._frame.turns, self._around[1:-1], strict=True):
            prompt = prompt.text(content).template(template)
        return prompt

    def tokens(self, session: Session, input: str) -> QuestionTokens:
        text = input.strip()
        if self._read is not None and text:
            return QuestionTokens(self._read(text), self.choices, self.lead)
        prompt: Any
        if self._settings.prompt is not None:
            prompt = self._settings.prompt(input, self.asked)
        elif self._around is None:  # the template changes contents, so it must render these
            turns = [*self._frame.turns, ("user", self._frame.with_input(text))]
            prompt = [{"role": role, "content": content} for role, content in turns]
        else:
            prompt = self._turns().text(self._frame.with_input(text)).template(self._around[-1])
        labels, before, lead = continued_by(session, self._labels, prompt)
        return QuestionTokens(list(prompt_tokens(session, before)), labels, lead)


def tokens_of_prompts(
    session: Session, text: str, prompts: Sequence[QuestionPrompt]
) -> list[QuestionTokens]:
    if len(prompts) > 1 and len(text) > 2 * NEAR:
        first = prompts[0].beginning
        if first is not None and all(each.beginning == first for each in prompts):
            joined = _joined(session, text.strip(), prompts)
            if joined is not None:
                return joined
    return [each.tokens(session, text) for each in prompts]


def _joined(
    session: Session, text: str, prompts: Sequence[QuestionPrompt]
) -> list[QuestionTokens] | None:
    """Return the tokens of prompts with a long input first; None if they cannot be joined.

    The input is tokenized once, and each question together with the end of the input, because the
    text after two line breaks may decide whether they are one token. Both are joined where they
    agree.
    """
    whole = prompts[0].tokens(session, text).tokens
    near = [each.read_near(text[-NEAR:]) for each in prompts]
    n = len(commonprefix([whole[::-1], near[0][::-1]]))  # from the end
    n_common = len(commonprefix(near))
    n_skipped = len(near[0]) - n
    if n_skipped >= n_common:  # only tokens of the question are the same, none of the input
        return None
    before = whole[: len(whole) - n]
    return [
        QuestionTokens(before + tokens[n_skipped:], each.choices, each.lead)
        for each, tokens in zip(prompts, near, strict=True)
    ]
