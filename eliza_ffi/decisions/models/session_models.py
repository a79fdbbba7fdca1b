"""Ask a decision model, with its own prompts and labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..._lazy import once_for_each
from ...choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ...library.protocol import PreparedChoices
from ..prompts import AskedQuestion
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


def systemone_questions(questions: Sequence[AskedQuestion]) -> list[SystemoneQuestion]:
    """Convert questions to the format of decision models. The ids are names, or else unused
    numbers."""
    taken = {question.name for question in questions}
    numbers = (str(i) for i in itertools.count() if str(i) not in taken)
    return [_converted(each, each.name or next(numbers)) for each in questions]


def _converted(question: AskedQuestion, id: str) -> SystemoneQuestion:
    # If the question was changed after it was read, its source is no longer valid.
    if question.source is not None and question_from(question.source, question.name) == question:
        return SystemoneQuestion.read(question.source, id)
    return SystemoneQuestion.of(question, id)


def label_tokens(session: Session, tokens: Sequence[int]) -> PreparedChoices:
    leaves = tuple(TokenTreeLeaf(f"{i:03}", (token,)) for i, token in enumerate(tokens))
    payload = TokenTreePayload(session.model_id, (TokenTreeDescriptor("labels", leaves),))
    return session.binding.prepare_token_trie(session.ctx, payload.to_json(), len(leaves))
