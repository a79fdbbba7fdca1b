"""Asking a model that was made for decisions: its own prompts, its own labels."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...choices.prepared_labels import ChoiceTokens
from ...choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ...session.requests import generate_request
from ...session.scoring import Ending, ScoreArgs, ScoreResult
from ..common_prefix import split_common_prefix
from ..prompts import AskedQuestion
from ..scoring import OptionScores, QuestionScores, mean_mass
from ..wire import question_from
from .decision_model import DecisionModel
from .systemone import SystemoneQuestion

if TYPE_CHECKING:
    from ...session.session import Session

__all__ = ["ModelAsking", "decision_model_of"]

_MODELS: weakref.WeakKeyDictionary[Session, DecisionModel | None] = weakref.WeakKeyDictionary()


def decision_model_of(session: Session) -> DecisionModel | None:
    """Return what the model's file says of decisions; None where it was not made for them.

    Raises
    ------
    NotSupportedError, ModelError, ChatTemplateError
        As :meth:`DecisionModel.of`.
    """
    context = session.ctx
    if session not in _MODELS:
        facts = session.describe() if session.binding.supports("describe") else {}
        # Not the session's own methods: it would keep itself alive.
        tokenize = partial(session.binding.tokenize, context)
        detokenize = partial(session.binding.detokenize, context)
        _MODELS[session] = DecisionModel.of(facts.get("model", {}), tokenize, detokenize)
    return _MODELS[session]


class ModelAsking:
    """One input and its questions in a model's own form; see :class:`.asking.Asking`.

    Parameters
    ----------
    session, model
    given
        The input, as it is: the model's template puts it into words.
    questions
        Each with one answer.
    option_mass
        Whether to find the labels' share of the next token's probability.
    stream
        Settings of the stream: slot and cache.

    Attributes
    ----------
    args : ScoreArgs
    """

    def __init__(
        self,
        session: Session,
        model: DecisionModel,
        given: Any,
        questions: Sequence[AskedQuestion],
        *,
        option_mass: bool = False,
        stream: Mapping[str, Any] | None = None,
    ) -> None:
        ids = _ids(questions)
        asked = [_asked(question, id) for question, id in zip(questions, ids, strict=True)]
        self._questions = model.ask(asked, given)
        every = [prompt for question in self._questions for prompt in question.prompts]
        tokens, behind = split_common_prefix([list(prompt.tokens) for prompt in every])
        choices = [_labels(session, prompt.read) for prompt in every]
        self.args = ScoreArgs(
            generate_request(session, tokens, method="decide", **(stream or {})),
            tuple(map(Ending, behind, choices)),
            option_mass=option_mass,
        )

    def scores(self, result: ScoreResult) -> tuple[QuestionScores, ...]:
        """Return what the model said, question by question: its orders are one already."""
        each = iter(result.scores)
        scores = []
        for question in self._questions:
            read = [next(each) for _ in question.prompts]
            p = np.array(question.probabilities([one.legal.tolist() for one in read]))
            mass = mean_mass(one.option_mass for one in read)
            with np.errstate(divide="ignore"):
                scores.append(QuestionScores((OptionScores(np.log(p), option_mass=mass),)))
        return tuple(scores)


def _asked(question: AskedQuestion, id: str) -> SystemoneQuestion:
    # A question that was changed since asks for something else than its source does.
    if question.source is not None and question_from(question.source, question.name) == question:
        return SystemoneQuestion.read(question.source, id)
    return SystemoneQuestion.of(question, id)


def _ids(questions: Sequence[AskedQuestion]) -> list[str]:
    """Return an id of its own for each: its name, or a number that no other one is named by."""
    taken = {question.name for question in questions}
    numbers = (str(i) for i in itertools.count() if str(i) not in taken)
    return [next(numbers) if question.name is None else question.name for question in questions]


def _labels(session: Session, tokens: Sequence[int]) -> ChoiceTokens:
    leaves = tuple(TokenTreeLeaf(f"{i:03}", (token,)) for i, token in enumerate(tokens))
    payload = TokenTreePayload(session.model_id, (TokenTreeDescriptor("labels", leaves),))
    if not session.binding.supports("prepare_token_trie"):
        return payload
    return session.binding.prepare_token_trie(session.ctx, payload.to_json(), len(leaves))
