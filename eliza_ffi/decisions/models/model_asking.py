"""Ask a decision model, with its own prompts and labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._lazy import once_for_each
from ...choices.prepared_labels import ChoiceTokens
from ...choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ...session.requests import generate_request
from ...session.scoring import Ending, ScoreArgs, ScoredPrompt, ScoreResult
from ..common_prefix import split_common_prefix
from ..prompts import AskedQuestion
from ..scoring import OptionScores, QuestionScores, mean_mass
from ..wire import question_from
from .decision_model import DecisionModel
from .systemone import SystemoneQuestion

if TYPE_CHECKING:
    from ...session.session import Session


@once_for_each
def decision_model_of(session: Session) -> DecisionModel | None:
    """Return the decision model of a session; None if its model is not one."""
    facts = session.describe() if session.binding.supports("describe") else {}
    # Methods of the session would keep it alive.
    tokenize = partial(session.binding.tokenize, session.ctx)
    detokenize = partial(session.binding.detokenize, session.ctx)
    return DecisionModel.of(facts.get("model", {}), tokenize, detokenize)


class ModelAsking:
    """Convert an input and its questions to a scoring request in a decision model's format.

    It has the same interface as :class:`.asking.Asking`. The input is JSON, and the model's
    template converts it to text.
    """

    def __init__(
        self,
        session: Session,
        model: DecisionModel,
        input: Any,
        questions: Sequence[AskedQuestion],
        *,
        allowed_probability: bool = False,
        stream: Mapping[str, Any] | None = None,
    ) -> None:
        ids = _ids(questions)
        asked = [_asked(question, id) for question, id in zip(questions, ids, strict=True)]
        self._questions = model.ask(asked, input)
        every = [prompt for question in self._questions for prompt in question.prompts]
        request = partial(generate_request, session, method="decide", **(stream or {}))
        if model.marked is not None:
            self.args = ScoreArgs(
                [ScoredPrompt(request(each.tokens), positions=each.read) for each in every]
            )
            return
        tokens, endings = split_common_prefix([list(prompt.tokens) for prompt in every])
        choices = [_labels(session, prompt.read) for prompt in every]
        prompt = ScoredPrompt(request(tokens), tuple(map(Ending, endings, choices)))
        self.args = ScoreArgs([prompt], allowed_probability=allowed_probability)

    def scores(self, result: ScoreResult) -> tuple[QuestionScores, ...]:
        """Return the scores of each question, averaged over its prompts, as a single order."""
        values = iter(result.hidden or [each.legal for each in result.scores])
        masses = iter([each.allowed_probability for each in result.scores])
        scores = []
        for question in self._questions:
            n = len(question.prompts)
            p = np.array(question.probabilities(list(itertools.islice(values, n))))
            mass = mean_mass(itertools.islice(masses, n))
            with np.errstate(divide="ignore"):
                scores.append(QuestionScores((OptionScores(np.log(p), allowed_probability=mass),)))
        return tuple(scores)


def _asked(question: AskedQuestion, id: str) -> SystemoneQuestion:
    # If the question was changed after it was read, its source is no longer valid.
    if question.source is not None and question_from(question.source, question.name) == question:
        return SystemoneQuestion.read(question.source, id)
    return SystemoneQuestion.of(question, id)


def _ids(questions: Sequence[AskedQuestion]) -> list[str]:
    """Return a unique id for each question: its name, or a number that is not a name."""
    taken = {question.name for question in questions}
    numbers = (str(i) for i in itertools.count() if str(i) not in taken)
    return [next(numbers) if question.name is None else question.name for question in questions]


def _labels(session: Session, tokens: Sequence[int]) -> ChoiceTokens:
    leaves = tuple(TokenTreeLeaf(f"{i:03}", (token,)) for i, token in enumerate(tokens))
    payload = TokenTreePayload(session.model_id, (TokenTreeDescriptor("labels", leaves),))
    if not session.binding.supports("prepare_token_trie"):
        return payload
    return session.binding.prepare_token_trie(session.ctx, payload.to_json(), len(leaves))
