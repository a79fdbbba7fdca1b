"""The tokens of decisions' prompts.

A chat prompt is the model's chat template around the text of :mod:`eliza_ffi.decisions.layout`. It
ends where the assistant's turn begins. Thinking is switched off if the template has a switch for
it. All other text is tokenized as plain text, so that no input can end a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..chat.prompt import Prompt
from ..choices.label_set import LabelSet
from ..choices.prepared_labels import ChoiceTokens
from ..library.protocol import Tokens
from ..session.requests import continued_by, prompt_tokens
from .common_prefix import length_shared
from .layout import Frame, frame
from .prompt_settings import PromptSettings
from .prompts import RenderedQuestion
from .questions import Choice

if TYPE_CHECKING:
    from ..session.session import Session

NEAR = 64
"""Text at a distance of this many characters is assumed not to affect a tokenizer's splits."""

THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""The template variables that switch thinking off; templates use different names."""


@dataclass(frozen=True, eq=False)
class QuestionTokens:
    """The tokens of a question's prompt, and the labels that follow them.

    If `k` is not None, the k most probable labels are searched instead of scoring all. `lead` has
    the spaces that each label begins with, because they have no tokens in the prompt.
    """

    tokens: Tokens
    labels: ChoiceTokens
    k: int | None = None
    lead: str = ""


def tokens_of_prompts(
    session: Session, inputs: Sequence[str], every: Sequence[RenderedQuestion], how: PromptSettings
) -> list[QuestionTokens]:
    """Return the tokens of the prompts: for each input, those of each question."""
    if how.prompt is not None:
        written = [(asked, how.prompt(text, asked)) for text in inputs for asked in every]
        return [_tokens(session, asked, prompt) for asked, prompt in written]
    frames = [frame(asked, how.format, how.order, how.shots_of(asked.question)) for asked in every]
    around = {each.roles: _template_around(session, how, each) for each in frames}
    if len(inputs) == 1 and len(every) > 1 and _may_join(inputs[0], frames):
        template = around[frames[0].roles]
        if template is not None:
            joined = _joined(session, inputs[0].strip(), every, frames, template)
            if joined is not None:
                return joined
    return [
        _tokens(session, asked, _prompt(each, text.strip(), around[each.roles]))
        for text in inputs
        for asked, each in zip(every, frames, strict=True)
    ]


def _tokens(session: Session, asked: RenderedQuestion, prompt: Any) -> QuestionTokens:
    labels, k = _labels(asked)
    tokens, before, lead = continued_by(session, labels, prompt, **THINKING_OFF)
    return QuestionTokens(prompt_tokens(session, before), tokens, k, lead)


def _labels(asked: RenderedQuestion) -> tuple[LabelSet[Any], int | None]:
    """Return the labels after a question's prompt, and how many of them to search."""
    if asked.options:
        texts = [option.label for option in asked.options]
        return LabelSet(texts, texts), None
    assert isinstance(asked.question, Choice)
    return asked.question.label_set, asked.question.top


def _template_around(session: Session, how: PromptSettings, each: Frame) -> list[str] | None:
    """Return the template text around the contents of all messages; None if it is unknown."""
    if how.format == "plain":
        return ["", ""]
    return session.chat().around([*each.roles, "user"], **THINKING_OFF)


def _prompt(each: Frame, text: str, around: list[str] | None) -> Any:
    """Return the prompt of an input, as text or as messages."""
    turns = [*each.turns, ("user", each.with_input(text))]
    if around is None:  # the template changes contents, so it must render these
        return [{"role": role, "content": content} for role, content in turns]
    prompt = Prompt().template(around[0])
    for (_, content), template in zip(turns, around[1:], strict=True):
        prompt = prompt.text(content).template(template)
    return prompt


def _may_join(text: str, frames: Sequence[Frame]) -> bool:
    """Return whether long inputs are worth tokenizing only once, and come before the questions."""
    first = frames[0]
    is_same = all((each.turns, each.before) == (first.turns, first.before) for each in frames)
    return is_same and len(text) > 2 * NEAR


def _joined(
    session: Session,
    text: str,
    every: Sequence[RenderedQuestion],
    frames: Sequence[Frame],
    around: list[str],
) -> list[QuestionTokens] | None:
    """Return the tokens of prompts with a long input first; None if they cannot be joined.

    The input is tokenized only once. In many vocabularies the text that follows two line breaks
    decides whether they are one token. Therefore each question is tokenized together with the end
    of the input. The result is joined to the tokens of the whole input where both agree.
    """
    first = _tokens(session, every[0], _prompt(frames[0], text, around))
    near = [
        _tokens(session, asked, Prompt().text(text[-NEAR:] + each.after).template(around[-1]))
        for asked, each in zip(every, frames, strict=True)
    ]
    n = length_shared([first.tokens[::-1], near[0].tokens[::-1]])  # from the end
    n_common = length_shared([each.tokens for each in near])
    n_skipped = len(near[0].tokens) - n
    if n_skipped >= n_common:  # only tokens of the question are the same, none of the input
        return None
    before = list(first.tokens[: len(first.tokens) - n])
    return [replace(each, tokens=[*before, *each.tokens[n_skipped:]]) for each in near]
